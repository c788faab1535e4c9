# The server is killed twenty times in the middle of work. What a client was told is durable is written down on the
# host, line by line, right after the system call returned; in the end every line must be true.

KILLS=20

case_twenty_kills_in_the_middle_of_writes_and_creates() {
	local k n
	py "$GUEST/acknowledge.py" write "$KC_OUT/acked" &
	cd /        # a shell looks at its directory when it starts, and would wait for the server that it is to start
	for k in $(seq $KILLS); do
		# Wait until work is acknowledged again after the last kill, so that each kill interrupts something.
		n=$(cat "$KC_OUT"/acked.* 2>/dev/null | wc -l)
		within 60 bash -c "while [ \$(cat $KC_OUT/acked.* 2>/dev/null | wc -l) -lt $((n + 12)) ]; do sleep 0.05; done"
		sleep "0.$((k * 37 % 100))"
		kc-hook server-kill
		kc-hook server-start
		echo "kill $k after $SECONDS s: $(cat "$KC_OUT"/acked.* | wc -l) acknowledged"
	done
	n=$(cat "$KC_OUT"/acked.* | wc -l)
	within 60 bash -c "while [ \$(cat $KC_OUT/acked.* | wc -l) -lt $((n + 12)) ]; do sleep 0.05; done"
	touch "$KC_OUT/stop"
	wait $!
	if grep -h 'error' "$KC_OUT"/acked.*; then die "the client got an error instead of waiting"; fi
}

case_every_acknowledged_create_and_fsynced_byte_is_there() {
	cd "../twenty_kills_in_the_middle_of_writes_and_creates"
	kc-drop
	py "$GUEST/acknowledge.py" verify "$KC_OUT/acked"
}

case_it_is_there_after_a_remount_and_another_kill() {
	cd /
	kc-hook server-kill
	kc-hook server-start
	remount
	cd "$MNT/killed_server/twenty_kills_in_the_middle_of_writes_and_creates"
	py "$GUEST/acknowledge.py" verify "$KC_OUT/acked"
}

case_the_interrupted_tree_can_be_removed() {
	cd $MNT/killed_server
	rm -r twenty_*
	[ ! -e twenty_kills_in_the_middle_of_writes_and_creates ]
}
