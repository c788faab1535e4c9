//! The suite that every namespace passes: `namespace_suite!(make)`, where `make()` gives a fresh `World`.
//!
//! Each test is a sentence about the seam; what it expects is what Linux does on a local file system. The root
//! directory of a world belongs to root with mode 0755; `work` in it is open to everybody.

use std::any::Any;
use std::sync::Arc;

use api::{
    Acls, CreateKind, CreateMode, CreateSpec, Created, ExpectedEnds, ExpectedFile, Locality, Locations,
    Namespace, NamespaceError, Properties, RecoveryRecords, Replace, ReplicaRef, SetAttributes, Stability,
    Uploads, Written, Xattrs,
};
use types::{Attributes, FileId, Identity, Name, PoolId, Timestamp};

use crate::clock::ManualClock;

#[allow(clippy::unwrap_used, reason = "these are tests")]
pub mod acls;
#[allow(clippy::unwrap_used, reason = "these are tests")]
pub mod attributes;
#[allow(clippy::unwrap_used, reason = "these are tests")]
pub mod creation;
#[allow(clippy::unwrap_used, reason = "these are tests")]
pub mod listing;
#[allow(clippy::unwrap_used, reason = "these are tests")]
pub mod properties;
#[allow(clippy::unwrap_used, reason = "these are tests")]
pub mod records;
#[allow(clippy::unwrap_used, reason = "these are tests")]
pub mod removal;
#[allow(clippy::unwrap_used, reason = "these are tests")]
pub mod renaming;
#[allow(clippy::unwrap_used, reason = "these are tests")]
pub mod uploads;
#[allow(clippy::unwrap_used, reason = "these are tests")]
pub mod xattrs;

/// A namespace under test.
pub struct World {
    pub names: Arc<dyn Namespace>,
    pub acls: Arc<dyn Acls>,
    pub locations: Arc<dyn Locations>,
    pub records: Arc<dyn RecoveryRecords>,
    pub uploads: Arc<dyn Uploads>,
    pub properties: Arc<dyn Properties>,
    pub xattrs: Arc<dyn Xattrs>,
    pub clock: Arc<ManualClock>,
    /// A value that must live as long, such as a scratch directory.
    pub keep: Box<dyn Any + Send>,
}

pub fn at(seconds: i64) -> Timestamp {
    Timestamp::new(seconds, 0).expect("no nanoseconds are given")
}

/// Of a file whose replicas are all good.
pub fn placed(replicas: &[(PoolId, Timestamp)]) -> Locality {
    let good = replicas.iter().map(|(pool, since)| ReplicaRef::good(*pool, *since));
    Locality::Replicas(good.collect())
}

pub fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).expect("tests use good names")
}

pub fn root() -> Identity {
    Identity::root()
}

/// uid 10, group 100, also in 101.
pub fn alice() -> Identity {
    Identity::new(10, 100, &[101])
}

/// uid 20, group 200.
pub fn bob() -> Identity {
    Identity::new(20, 200, &[])
}

pub fn spec(kind: CreateKind, permissions: u32) -> CreateSpec {
    let set = SetAttributes::default();
    CreateSpec { kind, mode: CreateMode::Guarded, permissions, umask: None, set, location: None }
}

pub fn written(size: u64, stability: Stability) -> Written {
    Written { size_at_least: Some(size), mtime: None, space_used: None, stability }
}

impl World {
    /// A directory that everybody may write.
    pub async fn work(&self) -> FileId {
        let set = SetAttributes { mode: Some(0o777), ..SetAttributes::default() };
        let spec = CreateSpec { set, ..spec(CreateKind::Directory, 0o777) };
        self.names
            .create(&root(), FileId::ROOT, &name("work"), &spec)
            .await
            .expect("root makes work")
            .attributes
            .file
    }

    pub async fn make(
        &self,
        who: &Identity,
        dir: FileId,
        text: &str,
        kind: CreateKind,
        mode: u32,
    ) -> Created {
        let made = self.names.create(who, dir, &name(text), &spec(kind, mode)).await;
        made.unwrap_or_else(|error| panic!("cannot create {text}: {error}"))
    }

    pub async fn file(&self, who: &Identity, dir: FileId, text: &str) -> FileId {
        self.make(who, dir, text, CreateKind::Regular, 0o644).await.attributes.file
    }

    pub async fn dir(&self, who: &Identity, dir: FileId, text: &str) -> FileId {
        self.make(who, dir, text, CreateKind::Directory, 0o755).await.attributes.file
    }

    pub async fn lookup(&self, dir: FileId, text: &str) -> Result<Attributes, NamespaceError> {
        Ok(self.names.lookup(&root(), dir, &name(text)).await?.entry)
    }

    pub async fn attributes(&self, file: FileId) -> Attributes {
        self.names.attributes(file).await.unwrap_or_else(|error| panic!("cannot read {file}: {error}"))
    }

    pub async fn locality(&self, file: FileId) -> Locality {
        let found = self.locations.locality(file).await;
        found.unwrap_or_else(|error| panic!("cannot read where {file} is: {error}"))
    }

    /// As a walk over all files finds it.
    pub async fn listed(&self, file: FileId) -> Locality {
        let page = self.locations.files(FileId(file.0 - 1), 1).await.expect("files can be listed");
        let found = page.into_iter().next().filter(|found| found.attributes.file == file);
        found.unwrap_or_else(|| panic!("{file} is not listed")).locality
    }

    pub async fn set(
        &self,
        who: &Identity,
        file: FileId,
        set: SetAttributes,
    ) -> Result<Attributes, NamespaceError> {
        self.names.set_attributes(who, file, &set).await
    }

    pub async fn chmod(&self, file: FileId, mode: u32) {
        let set = SetAttributes { mode: Some(mode), ..SetAttributes::default() };
        self.set(&root(), file, set).await.expect("root may chmod");
    }

    pub async fn rename(
        &self,
        who: &Identity,
        from: (FileId, &str),
        to: (FileId, &str),
    ) -> Result<api::Renamed, NamespaceError> {
        self.rename_over(who, from, to, Replace::Any).await
    }

    pub async fn rename_over(
        &self,
        who: &Identity,
        from: (FileId, &str),
        to: (FileId, &str),
        replace: Replace,
    ) -> Result<api::Renamed, NamespaceError> {
        self.names.rename(who, (from.0, &name(from.1)), (to.0, &name(to.1)), replace, ExpectedEnds::ANY).await
    }

    pub async fn unlink(
        &self,
        who: &Identity,
        dir: FileId,
        text: &str,
    ) -> Result<api::Unlinked, NamespaceError> {
        self.names.unlink(who, dir, &name(text), ExpectedFile::Any).await
    }
}

/// The error of what must fail, as a pattern.
#[macro_export]
macro_rules! refused {
    ($result:expr, $pattern:pat $(if $guard:expr)?) => {
        match $result {
            Err($pattern) $(if $guard)? => {}
            other => panic!("expected {}, got {:?}", stringify!($pattern), other.map(|_| "success")),
        }
    };
}

/// All tests of the suite on the namespace that `$make()` gives.
#[macro_export]
macro_rules! namespace_suite {
    ($make:ident) => {
        $crate::namespace_suite!(@tests $make, creation: [
            a_created_file_is_found_with_its_attributes
            a_name_that_is_not_there_is_not_found
            a_look_up_in_a_file_or_link_says_so_to_callers_without_permission_too
            a_look_up_tells_of_the_directory_too
            a_missing_directory_is_stale_and_a_file_is_no_directory
            creating_moves_the_times_and_change_of_the_directory
            guarded_creation_refuses_a_name_of_any_kind
            unchecked_creation_returns_the_existing_file_untouched
            a_repeated_exclusive_creation_finds_its_own_file
            creation_needs_write_and_search_permission
            an_existing_name_needs_search_permission_only
            a_set_gid_directory_hands_its_group_down
            a_file_for_a_strange_group_is_not_made_set_gid
            symbolic_links_keep_their_target
            devices_fifos_and_sockets_keep_their_kind
            a_directory_counts_its_subdirectories
            creation_sets_attributes_in_the_same_step
            only_root_creates_for_another_owner
            names_are_bytes
        ]);
        $crate::namespace_suite!(@tests $make, removal: [
            removal_needs_write_permission_on_the_directory
            in_a_sticky_directory_only_owners_remove
            a_removal_takes_the_expected_file_only
            a_directory_with_entries_is_not_removed
            a_removed_directory_is_stale
            a_file_whose_last_name_went_is_an_orphan_until_forgotten
            forgetting_leaves_alone_what_has_a_name
            a_hard_link_is_the_same_file
            a_directory_takes_no_hard_link
            an_orphan_takes_no_new_name
            a_name_is_free_again_after_its_removal
        ]);
        $crate::namespace_suite!(@tests $make, renaming: [
            a_rename_moves_the_file_and_tells_both_directories
            a_rename_replaces_a_file
            two_names_of_a_directory_change_places
            a_directory_replaces_only_an_empty_directory
            a_directory_replaces_no_file_and_no_file_a_directory
            both_names_of_one_file_stay
            a_file_that_replaces_itself_by_another_name_loses_the_one_it_came_from
            a_directory_does_not_move_below_itself
            an_ancestor_is_not_replaced
            moving_a_directory_moves_its_link_and_its_parent
            moving_a_directory_needs_write_permission_on_it
            in_a_sticky_directory_only_owners_rename_and_replace
            a_missing_source_is_not_found
            renaming_needs_permission_on_both_directories
            a_rename_onto_a_name_that_must_be_free_replaces_nothing
            a_rename_replaces_the_very_file_it_was_told
            a_rename_moves_and_replaces_the_expected_files_only
        ]);
        $crate::namespace_suite!(@tests $make, attributes: [
            only_the_owner_changes_the_mode
            only_root_gives_a_file_away
            the_owner_chooses_among_his_groups
            a_change_of_owner_takes_set_uid_away
            a_mode_for_a_strange_group_is_not_set_gid
            given_times_are_for_the_owner_and_now_for_writers
            a_truncation_needs_write_permission_or_an_open_file
            a_mode_that_is_set_with_a_length_keeps_its_set_id_bits
            only_regular_files_have_a_size_to_set
            setting_nothing_changes_nothing
            recorded_writes_show_size_and_times_together
            an_unstable_write_is_seen_at_once
            an_unstable_write_survives_a_change_of_attributes
            a_truncation_after_an_unstable_write_wins
            a_write_without_bytes_changes_nothing
            a_write_takes_set_uid_away
            only_writes_of_regular_files_are_recorded
            change_grows_with_every_mutation
            the_parent_of_a_directory_follows_its_moves
        ]);
        $crate::namespace_suite!(@tests $make, listing: [
            a_listing_has_every_entry_once_in_pages
            a_listing_continues_behind_a_removed_entry
            a_directory_is_listed_while_it_is_emptied
            a_listing_needs_read_permission
            a_cookie_that_was_never_given_is_refused
            an_empty_directory_lists_nothing
            a_listing_shows_unstable_sizes
            a_replaced_name_keeps_its_place
        ]);
        $crate::namespace_suite!(@tests $make, records: [
            locations_are_added_and_dropped_idempotently
            a_location_is_recorded_with_the_creation
            a_replica_that_is_dropped_and_noted_again_is_good_since_then
            a_file_with_a_length_and_no_replica_is_lost_until_it_is_made_empty
            a_file_that_loses_its_last_replica_is_lost_if_it_has_a_length
            the_epoch_only_rises
            a_copy_is_noted_beside_a_good_replica_and_takes_its_place_in_one_change
            a_copy_does_not_take_the_place_of_a_replica_of_a_file_that_was_changed
            a_replica_is_not_made_where_there_is_another_or_of_nothing
            files_with_replicas_that_are_not_good_are_listed_in_pages
            files_are_told_with_their_localities_in_pages
            client_records_are_kept_by_owner
            usage_counts_files_and_bytes
        ]);
        $crate::namespace_suite!(@tests $make, uploads: [
            an_unnamed_file_has_a_place_and_no_name
            an_unnamed_file_needs_what_a_creation_needs
            an_unnamed_file_gets_the_group_of_a_set_gid_directory
            an_unnamed_file_that_is_given_up_is_forgotten
            a_published_file_shows_name_size_times_and_checksums_together
            a_file_published_without_a_time_gets_the_present_time
            a_file_is_published_once
            a_name_that_must_be_free_is_not_replaced
            exactly_one_state_is_replaced
            one_file_in_whatever_state_is_replaced
            a_replaced_file_hands_on_owner_mode_and_properties
            a_file_with_properties_of_its_own_keeps_them
            a_replaced_file_with_another_name_keeps_that
            a_replaced_symbolic_link_hands_nothing_on
            an_upload_replaces_nothing_but_a_file
            publishing_needs_permission_on_directory_and_file
            a_directory_that_went_takes_no_published_file
            of_many_publishes_to_one_name_each_is_seen_whole
        ]);
        $crate::namespace_suite!(@tests $make, properties: [
            properties_are_kept_to_the_byte
            changes_of_properties_apply_in_order
            changing_properties_moves_change_and_ctime_and_no_other_time
            properties_are_for_the_owner_and_for_writers
            properties_beyond_their_bounds_are_refused_as_a_whole
            properties_follow_the_file_not_the_name
            every_kind_of_file_may_have_properties
            recorded_checksums_are_added_to_those_known
            checksums_of_an_older_state_are_not_recorded
            every_change_of_the_data_forgets_its_checksums
            checksums_are_forgotten_before_a_pool_is_written
            a_refused_truncation_forgets_nothing
            operations_that_leave_the_data_alone_keep_its_checksums
            a_published_file_has_the_checksums_it_was_published_with
        ]);
        $crate::namespace_suite!(@tests $make, acls: [
            an_acl_is_kept_with_the_mode_that_it_amounts_to
            a_new_mode_changes_the_acl_and_an_acl_given_with_it_comes_last
            only_owners_and_whom_the_acl_allows_it_change_acl_mode_times_and_owner
            directories_are_searched_listed_and_filled_as_their_acls_say
            names_are_taken_away_by_delete_child_of_the_directory_or_delete_of_the_file
            an_object_made_in_a_directory_inherits_from_its_acl
            a_directory_that_only_hands_an_acl_on_has_the_mode_that_was_asked_for
            a_chmod_that_an_acl_allows_keeps_set_gid_only_for_a_member_of_the_group
            an_upload_inherits_and_one_that_replaces_takes_the_acl_over
        ]);
        $crate::namespace_suite!(@tests $make, xattrs: [
            extended_attributes_are_kept_to_the_byte
            an_extended_attribute_is_made_and_replaced_as_it_was_asked
            changing_an_extended_attribute_moves_change_and_ctime_and_no_other_time
            extended_attributes_follow_the_mode_bits
            in_a_sticky_directory_only_its_owner_changes_its_extended_attributes
            only_files_and_directories_have_extended_attributes
            extended_attributes_beyond_their_bounds_are_refused
            extended_attributes_are_listed_behind_a_cookie_whatever_else_changes
            extended_attributes_follow_the_file_not_the_name
            a_replaced_file_hands_on_its_extended_attributes
            extended_attributes_and_properties_do_not_see_each_other
        ]);
    };
    (@tests $make:ident, $module:ident: [$($test:ident)*]) => {
        mod $module {
            $(
                #[tokio::test]
                async fn $test() {
                    $crate::namespace_suite::$module::$test(super::$make()).await;
                }
            )*
        }
    };
}
