# Real programs on two clients while the server is killed and cut off. What they were told is there, all of it.

# For as long as PostgreSQL may take to begin, below.
meet() { KC_BARRIER_S=200 kc-barrier "$CASE_NAME.$1" || die "the other client did not come to '$1'"; }
CASE_NAME=$2

kills() { # kills N SECONDS: the server dies and comes back N times, so many seconds apart
	local i
	for i in $(seq "$1"); do sleep "$2"; kc-hook server-kill; kc-hook server-start; done
}

case_postgresql_and_sqlite_keep_every_acknowledged_row() {
	local stop=/run/stop.$CASE_NAME
	if first_guest; then
		py "$GUEST/applications.py" postgresql "$stop" &
		within 150 sh -c "until [ -e $KC_OUT/postgresql.begun ]; do sleep 0.2; done"
	else
		py "$GUEST/applications.py" sqlite "$stop" &
	fi
	cd /
	meet begun
	if first_guest; then kills 2 3; fi
	meet killed
	# A client that is cut off before it has come back would miss the grace period, and lose its locks with it.
	sleep $((GRACE_S + 4))
	# For longer than the lease.
	if first_guest; then
		kc-hook client-cut 10.77.0.11; kc-hook client-cut 10.77.0.12
		sleep $((LEASE_S + 2))
		kc-hook client-back
	fi
	meet back
	sleep 3
	touch "$stop"
	wait $!
}

case_fio_reads_back_what_it_wrote_over_kills() {
	fio --name="verified.$KC_INDEX" --directory=. --size=12m --bsrange=512-128k --rw=randrw --verify=crc32c --verify_fatal=1 \
		--do_verify=1 --end_fsync=1 --numjobs=2 --ioengine=psync --minimal >"/run/fio" &
	cd /
	if first_guest; then kills 2 2; fi
	wait $! || { tail -5 /run/fio; die "fio: status $?"; }
}

case_two_clients_change_files_in_turn_over_kills_and_find_what_the_other_left() {
	py "$GUEST/applications.py" files 25 &
	cd /
	if first_guest; then kills 2 7; fi
	wait $!
	meet done
	cd "$MNT/applications/$(basename "${CASE_NAME#case_}")"
	py "$GUEST/applications.py" verify_files
}
