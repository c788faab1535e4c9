# Two kernels: guest 0 is cut off with a lock and with pages in memory, guest 1 gets the lock and writes; then guest 0 is back.

case_a_client_that_lost_a_lock_writes_nothing_over_the_next_holders_data() { py "$GUEST/lost_locks.py" lost; }
case_a_client_that_lost_a_lock_over_a_server_restart_writes_nothing_over_the_next_holders_data() { py "$GUEST/lost_locks.py" restarted; }
