# Two kernels: guest 0 has files to itself, to write (a delegation with each open), guest 1 and HTTP look at them. Attributes are
# not kept by time here (actimeo=0), so that what the other one sees is what the server says.

case_a_writer_opens_locks_and_closes_its_file_without_asking() { two alone; }
case_another_client_sees_what_the_writer_keeps_in_memory() { two unwritten; }
case_another_client_sees_every_append_at_once() { two appended; }
case_a_reader_gets_what_the_writer_has_closed() { two read; }
case_locks_of_a_writer_are_there_when_another_client_asks_for_one() { two locked; }
case_times_that_the_writer_sets_stay() { two times; }
case_http_sees_what_the_writer_keeps_in_memory() { two http; }

two() { PYTHONPATH=$GUEST py "$GUEST/write_delegations.py" "$1"; }
