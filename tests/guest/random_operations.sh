# Two clients with random operations at the same files. The stopped server must agree with itself afterwards: fsck says so.

case_random_operations_of_two_clients_leave_replicas_as_long_as_their_files() {
	py "$GUEST/random_operations.py" 30
}

case_random_operations_over_kills_of_the_server_leave_nothing_that_fsck_finds() {
	py "$GUEST/random_operations.py" 25 &
	cd /
	if first_guest; then
		for _ in 1 2 3; do sleep 4; kc-hook server-kill; kc-hook server-start; done
	fi
	wait $!
}
