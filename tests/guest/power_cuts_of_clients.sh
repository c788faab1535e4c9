# The power of the server's disk fails while a client works: the server dies, and the disk loses what was not flushed, all or some
# of it. What the client was told is durable was written down outside, line by line; every line must be true.

acknowledged() { cat "$KC_OUT"/acked.* 2>/dev/null | wc -l; }

power_cuts() { # power_cuts N: each interrupts something
	local k n
	for k in $(seq "$1"); do
		n=$(acknowledged)
		within 120 bash -c "while [ \$(cat $KC_OUT/acked.* 2>/dev/null | wc -l) -lt $((n + 12)) ]; do sleep 0.05; done"
		sleep "0.$((k * 37 % 100))"
		kc-hook server-kill
		kc-hook power-cut
		kc-hook server-start
		echo "cut $k after $SECONDS s: $(acknowledged) acknowledged"
	done
}

case_power_cuts_lose_nothing_that_a_client_was_told_is_there() {
	py "$GUEST/acknowledge.py" write "$KC_OUT/acked" &
	cd /        # a shell looks at its directory when it starts, and would wait for the server that it is to start
	power_cuts "$CUTS"
	touch "$KC_OUT/stop"
	wait $!
	if grep -h 'error' "$KC_OUT"/acked.*; then die "the client got an error instead of waiting"; fi
	# What the client has in memory is no proof.
	remount
	cd "$MNT/power_cuts_of_clients/power_cuts_lose_nothing_that_a_client_was_told_is_there"
	py "$GUEST/acknowledge.py" verify "$KC_OUT/acked"
}

case_power_cuts_in_random_operations_leave_nothing_that_fsck_finds() {
	py "$GUEST/random_operations.py" $((CUTS * 8)) &
	cd /
	for _ in $(seq "$CUTS"); do
		sleep 4
		kc-hook server-kill
		kc-hook power-cut
		kc-hook server-start
	done
	wait $!
}
