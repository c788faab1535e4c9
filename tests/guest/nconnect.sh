# A client with four connections for one session: what is lost with one of them is asked again over another.

connections() { kc-hook connections; }
# Work that reads and writes through the head and the pool, as long as `go` is there; a checksum that is wrong ends it.
work() {
	local n=0
	while [ -e /run/go ]; do
		dd if=/dev/urandom of=/run/want bs=64k count=24 status=none
		cp /run/want "f$1.$((n % 5))"
		sync "f$1.$((n % 5))"
		echo 1 >/proc/sys/vm/drop_caches
		cmp /run/want "f$1.$((n % 5))" || return 1
		n=$((n + 1))
	done
	echo "$n rounds"
}

case_four_connections_carry_one_session() {
	local i
	for i in 1 2 3 4 5 6 7 8; do cp /proc/self/status "f$i"; cat "f$i" >/dev/null; done
	same connections "$(connections)" 4
	kc-hook status >/run/status
	same clients "$(py -c 'import json; print(len(json.load(open("/run/status"))["clients"]))')" 1
}

case_io_goes_on_whichever_connection_is_cut() {
	local n
	touch /run/go
	work a &
	for n in 1 2 3 4 1 2 3 4; do
		sleep 1
		kc-hook cut "$n"
	done
	sleep 2
	rm /run/go
	wait $! || die "the work ended with $?"
}

case_a_connection_that_nobody_answers_holds_nothing_up_for_long() {
	local t0=$SECONDS
	touch /run/go
	work b &
	kc-hook deaf 2
	sleep 8
	kc-hook hearing
	rm /run/go
	within 100 bash -c "while kill -0 $! 2>/dev/null; do sleep 0.2; done"
	wait $! || die "the work ended with $?"
	echo "$((SECONDS - t0)) s"
}

# The first connection is the one that callbacks came over.
case_the_server_reaches_the_client_after_the_first_connection_was_cut() {
	dd if=/dev/urandom of=source bs=1M count=64 conv=fsync status=none
	touch /run/go
	work c &
	for n in 1 2 3 4; do kc-hook cut "$n"; done
	rm /run/go
	wait $! || die "the work ended with $?"
	# Nothing but a call back ends this copy.
	within 60 /usr/bin/python3 -c '
import os
a, b = os.open("source", os.O_RDONLY), os.open("copy", os.O_WRONLY | os.O_CREAT)
left = 64 << 20
while left:
    n = os.copy_file_range(a, b, left)
    assert n > 0
    left -= n
os.close(b)'
	kc-drop
	cmp source copy
}
