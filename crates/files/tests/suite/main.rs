//! Requirements of the file layer, over both engines of the namespace and over every pool.
//!
//! A requirement is a function of a [`world::World`]. `files_suite!` makes a test of each over one engine and one kind
//! of pool, `faults_suite!` one of each that schedules faults at the pools.

#![allow(clippy::unwrap_used, reason = "these are tests")]

mod checksums;
mod content;
mod copies;
mod faults;
mod kept_uploads;
mod moves;
mod names;
mod offline;
mod opens;
#[path = "../scene/mod.rs"]
mod scene;
mod uploads;
mod walks;
mod world;

/// Makes the tests of all requirements.
macro_rules! files_suite {
    ($store:ident, $pool:ident) => {
        crate::names_suite!($store, $pool);
        crate::bytes_suite!($store, $pool);
    };
}

/// Makes the tests of the requirements on names and opens.
macro_rules! names_suite {
    ($store:ident, $pool:ident) => {
        crate::tests_of! { $store $pool
            opens {
                a_file_is_made_by_each_kind_of_creation_and_opened
                an_open_that_another_denies_is_refused
                an_open_file_keeps_its_data_until_the_last_open_goes
                a_file_that_loses_its_name_while_it_is_opened_is_not_open
                a_reader_of_a_path_opens_the_file_that_has_replaced_the_one_it_has_found
                a_reader_of_a_path_needs_permission_and_a_regular_file
                a_reader_waits_for_the_delegation_of_a_writer_and_not_for_that_of_a_reader
                a_cut_waits_for_the_layouts_of_others_and_what_grows_does_not
                bytes_that_a_client_writes_at_the_pool_are_seen_by_others
            }
            names {
                a_removal_looks_nothing_up_while_nobody_is_in_the_way
                a_name_that_goes_to_another_file_while_a_recall_is_waited_for_is_judged_anew
                a_removal_of_an_expected_file_leaves_another_that_has_its_name
                a_removal_of_an_expected_file_leaves_another_that_gets_its_name_meanwhile
                a_file_that_is_removed_while_a_recall_is_waited_for_is_not_found
                a_delegation_granted_between_check_and_removal_is_called_back
                a_delegation_granted_between_check_and_rename_is_called_back
                one_more_name_waits_for_the_delegations_of_its_file_and_holds_new_ones_off
                a_change_that_is_refused_anyway_recalls_nothing
                a_rename_waits_for_both_files_at_once
                a_rename_whose_target_appears_meanwhile_recalls_its_delegations_before_it_replaces_it
                a_rename_of_an_expected_file_onto_a_name_that_must_be_free_moves_no_other
                a_file_that_another_door_has_locked_keeps_its_names
                a_locked_file_that_gets_the_name_meanwhile_keeps_it
                a_removed_or_replaced_name_counts_as_a_removal_and_a_move_does_not
                a_removal_that_has_waited_as_long_as_it_may_is_to_be_asked_for_again
                two_names_change_places_and_a_name_of_another_file_stays
                a_file_keeps_its_data_until_its_last_name_goes
            }
            kept_uploads {
                an_upload_in_parts_is_found_again_with_the_bytes_that_came
                a_request_that_breaks_off_leaves_its_upload_to_the_next
                an_upload_that_is_begun_anew_takes_the_place_of_the_one_before
                an_upload_that_nobody_goes_on_with_gives_its_place_and_its_bytes_up
                an_upload_at_a_pool_is_begun_once_unless_it_is_put_off
                an_upload_at_a_pool_that_has_lost_its_bytes_is_over
                an_upload_at_a_pool_that_is_not_begun_in_time_or_given_up_leaves_nothing
            }
            walks {
                links_are_followed_as_the_kernel_would
                a_link_leads_no_caller_out_of_the_path_of_its_credential
                the_root_is_no_entry
            }
        }
    };
}

/// Makes the tests of the requirements on bytes.
macro_rules! bytes_suite {
    ($store:ident, $pool:ident) => {
        crate::tests_of! { $store $pool
            content {
                written_bytes_are_read_back_and_end_where_the_file_ends
                a_fence_of_clients_ends_nothing_that_the_head_does
                a_file_without_a_byte_is_read_as_empty
                writers_of_disjoint_ranges_are_all_seen
                holes_read_as_zeros_and_are_found
                space_is_reserved_for_a_range_and_given_back
                a_file_that_is_cut_and_grows_shows_none_of_its_old_bytes
                a_file_without_a_replica_that_grows_reads_as_zeros
                a_write_without_room_or_behind_the_largest_length_changes_nothing
                a_replica_that_ends_before_the_file_is_an_error
                a_sync_answers_the_verifier_of_the_writes_that_it_covers
            }
            copies {
                a_copy_has_the_bytes_and_the_holes_of_its_source
                a_stretch_is_copied_to_another_place_and_the_rest_stays
                a_copy_that_takes_long_answers_with_the_bytes_done_and_at_least_one
                a_source_that_lost_its_end_is_an_error_and_no_zeros
                a_clone_has_the_bytes_of_its_source_or_is_refused
            }
            uploads {
                a_published_upload_shows_its_name_size_and_sums_together
                bytes_that_were_not_promised_get_no_name
                an_upload_whose_directory_is_removed_is_told_so_and_not_that_a_file_is_stale
                an_upload_replaces_the_state_that_its_terms_name_and_no_other
                a_name_that_another_file_gets_meanwhile_is_asked_for_again
                a_path_that_leads_elsewhere_when_the_bytes_are_there_is_refused
                a_path_is_walked_once_unless_something_was_renamed
                a_dropped_upload_leaves_an_orphan_that_nobody_holds
                an_upload_that_has_no_room_is_not_begun_and_one_that_was_given_up_takes_none
                bytes_that_come_in_any_order_are_one_file_without_what_was_given_up_behind_its_end
                clients_are_asked_once_for_what_they_hold_and_waited_for_when_the_name_is_given
                an_upload_whose_request_ends_keeps_layouts_from_no_client
                a_file_that_loses_its_name_during_an_upload_may_be_laid_out_again
                nothing_is_recalled_for_an_upload_that_is_refused_anyway
                a_hindrance_that_may_pass_leaves_an_upload_with_its_keeper
                a_caller_that_stops_waiting_for_a_recall_leaves_its_upload_with_its_keeper
                a_caller_that_stops_waiting_for_the_name_does_not_stop_it
                an_upload_without_a_pool_for_its_bytes_is_not_begun
                a_copy_has_the_bytes_holes_and_sums_of_its_source
            }
            checksums {
                a_checksum_is_computed_once_for_all_who_wait_and_then_kept
                a_write_forgets_the_checksums_of_the_bytes_before
                the_checksum_of_a_file_that_is_open_for_writing_is_not_kept
            }
            moves {
                a_moved_file_has_the_bytes_and_holes_that_it_had
                a_file_that_was_moved_away_comes_back_and_goes_again
                a_file_that_is_written_while_it_is_copied_stays_and_is_moved_later
                a_file_that_is_cut_while_it_is_copied_is_moved_later_with_its_new_length
                a_file_opened_before_it_was_moved_is_read_and_written_where_it_is
                a_file_that_is_removed_while_it_is_copied_leaves_nothing
                a_file_that_somebody_writes_or_has_at_a_pool_waits
                while_a_file_is_moved_no_client_is_sent_to_a_pool_and_old_tickets_write_nothing
                an_old_replica_stays_while_somebody_has_the_file_open
                a_move_that_ends_anywhere_is_cleared_up_and_can_be_made_again
                bytes_that_another_pool_gives_back_otherwise_are_found
            }
            offline {
                a_file_of_a_lost_pool_is_an_error_and_files_of_other_pools_are_served
                an_upload_goes_to_a_pool_that_can_be_reached
                a_copy_from_a_lost_pool_is_an_error
            }
        }
    };
}

/// Makes the tests of the requirements that schedule faults.
macro_rules! faults_suite {
    ($store:ident, $pool:ident) => {
        crate::tests_of! { $store $pool
            faults {
                acknowledged_bytes_survive_a_call_that_fails
                acknowledged_bytes_survive_a_lost_answer
                acknowledged_bytes_survive_a_torn_write
                acknowledged_bytes_survive_a_pool_that_disappears_and_comes_back
                an_operation_waits_for_a_call_that_takes_its_time
                an_operation_ends_in_time_at_a_call_that_hangs
            }
            moves {
                a_move_at_a_pool_that_fails_loses_nothing_and_is_made_when_it_is_well
                an_old_replica_is_not_removed_before_the_new_one_is_seen
            }
        }
    };
}

/// For pools whose crash loses what no sync has covered.
macro_rules! crash_suite {
    ($store:ident, $pool:ident) => {
        crate::tests_of! { $store $pool
            faults {
                acknowledged_bytes_survive_a_crash_that_loses_others
                a_crash_takes_replicas_of_which_nothing_was_committed_and_no_others
            }
            moves {
                a_pool_that_crashes_under_a_copy_gets_it_anew
            }
        }
    };
}

macro_rules! tests_of {
    ($store:ident $pool:ident $($area:ident { $($name:ident)* })*) => {
        $($(
            #[tokio::test]
            async fn $name() {
                let world = crate::world::World::set(crate::scene::$store, crate::world::$pool).await;
                crate::$area::$name(world).await;
            }
        )*)*
    };
}

use {bytes_suite, crash_suite, faults_suite, files_suite, names_suite, tests_of};

mod sqlite {
    mod memory {
        crate::files_suite!(sqlite, memory);
    }
    mod local {
        crate::files_suite!(sqlite, local);
    }
    mod channelled {
        crate::files_suite!(sqlite, channelled);
    }
    mod faulty_memory {
        crate::files_suite!(sqlite, faulty_memory);
        crate::faults_suite!(sqlite, faulty_memory);
        crate::crash_suite!(sqlite, faulty_memory);
    }
    mod faulty_local {
        crate::files_suite!(sqlite, faulty_local);
        crate::faults_suite!(sqlite, faulty_local);
    }
    mod faulty_channelled {
        crate::files_suite!(sqlite, faulty_channelled);
    }
    mod channelled_faulty {
        crate::faults_suite!(sqlite, channelled_faulty);
        crate::crash_suite!(sqlite, channelled_faulty);
    }
}

/// A database for each test takes its time, and names know nothing of faults.
mod postgres {
    mod memory {
        crate::files_suite!(postgres, memory);
    }
    mod local {
        crate::files_suite!(postgres, local);
    }
    mod channelled {
        crate::files_suite!(postgres, channelled);
    }
    mod faulty_memory {
        crate::bytes_suite!(postgres, faulty_memory);
        crate::faults_suite!(postgres, faulty_memory);
        crate::crash_suite!(postgres, faulty_memory);
    }
    mod faulty_local {
        crate::bytes_suite!(postgres, faulty_local);
    }
    mod faulty_channelled {
        crate::bytes_suite!(postgres, faulty_channelled);
    }
}
