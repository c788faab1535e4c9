# Two kernels: guest 1 keeps files to itself (a read delegation with each open), guest 0 or a program that speaks HTTP
# changes them. Attributes are not kept by time here (actimeo=0), so that what a client still believes is a delegation's doing.

case_a_writer_goes_on_within_two_seconds_and_the_reader_sees_what_it_wrote() { two writer; }
case_each_change_by_another_client_is_seen_at_once() { two changes; }
case_each_change_by_http_is_seen_at_once() { two http; }
case_a_thousand_delegated_files_are_removed_by_the_other_client() { two storm; }
case_a_server_killed_while_it_recalls_lets_the_writer_go_on() { two server_killed; }
case_a_killed_clients_delegations_are_taken_in_time() { two killed; }

two() { PYTHONPATH=$GUEST py "$GUEST/delegations_of_two.py" "$1"; }
