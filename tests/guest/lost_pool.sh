# Three pools, one of which cannot be reached by clients; the head still can. As documented: the head and the other pools
# go on; I/O on that pool's files waits, then passes through the head; when the pool is back, it is used again.

VICTIM=$((POOL_PORT + 1))
SILENT=$((POOL_PORT + 2))

# Which of the files p* the pool serves: those whose reading moves bytes there.
sort_files() {
	local f before silent_before
	: >/run/on-victim; : >/run/elsewhere; : >/run/on-silent
	for f in p*; do
		before=$(kc-hook pool-bytes $VICTIM); silent_before=$(kc-hook pool-bytes $SILENT)
		kc-drop
		cat "$f" >/dev/null
		if [ $(($(kc-hook pool-bytes $VICTIM) - before)) -gt 200000 ]; then
			echo "$f" >>/run/on-victim
			continue
		fi
		echo "$f" >>/run/elsewhere
		[ $(($(kc-hook pool-bytes $SILENT) - silent_before)) -le 200000 ] || echo "$f" >>/run/on-silent
	done
	wc -l /run/on-victim /run/on-silent /run/elsewhere
	[ -s /run/on-victim ] && [ -s /run/on-silent ] && [ "$(wc -l </run/elsewhere)" -gt "$(wc -l </run/on-silent)" ]
}

case_files_lie_on_the_pool_and_elsewhere() {
	local i
	for i in $(seq 18); do dd if=/dev/urandom of=p$i bs=256k count=1 conv=fsync status=none; done
	sha256sum p* >/run/sums
	sort_files
}

# A file in this directory that lies on the pool whose port will be silent.
find_silent_file() {
	local i before
	for i in $(seq 20); do
		before=$(kc-hook pool-bytes $SILENT)
		dd if=/dev/urandom of=w$i bs=256k count=1 conv=fsync status=none
		echo w$i >/run/silent-file
		[ $(($(kc-hook pool-bytes $SILENT) - before)) -le 200000 ] || return 0
	done
	die "no new file came to lie on the pool at port $SILENT"
}

others_go_on() {
	cd ../files_lie_on_the_pool_and_elsewhere
	grep -vxF -f /run/on-silent /run/elsewhere >/run/reachable || true
	[ -s /run/reachable ]
	within 10 ls -l >/dev/null
	within 10 mkdir "dir-$1"
	within 10 touch "dir-$1/new"
	within 10 stat $(cat /run/on-victim) >/dev/null
	echo 3 >/proc/sys/vm/drop_caches        # not kc-drop: its sync would wait for the silent pool
	within 40 cat $(cat /run/reachable) >/dev/null
}

io_falls_back() { # as documented in the manual: through the head, after the client has given the pool up
	local f=$(head -1 /run/on-victim) w=$(tail -1 /run/on-victim)
	kc-drop
	within 100 sh -c "grep ' $f\$' /run/sums | sha256sum -c --quiet"
	within 100 dd if=/dev/urandom of="$w" bs=256k count=1 conv=fsync,notrunc status=none
	sha256sum "$w" >/run/new-sum
	sed -i "/ $w\$/d" /run/sums; cat /run/new-sum >>/run/sums
}

everything_holds() {
	kc-drop
	within 100 sha256sum -c --quiet /run/sums
}

case_with_the_pools_port_refused_everything_else_goes_on() {
	kc-hook port-reject $VICTIM
	others_go_on refused
}
case_with_the_pools_port_refused_its_files_pass_through_the_head() {
	cd ../files_lie_on_the_pool_and_elsewhere
	io_falls_back
}
case_new_files_avoid_or_survive_the_refused_pool() {
	local i
	for i in $(seq 6); do within 100 dd if=/dev/urandom of=n$i bs=256k count=1 conv=fsync status=none; done
	sha256sum n* >/run/n-sums
	kc-drop
	within 100 sha256sum -c --quiet /run/n-sums
}
case_when_the_port_is_open_again_all_bytes_are_right() {
	cd ../files_lie_on_the_pool_and_elsewhere
	kc-hook port-open
	everything_holds
	cd ../new_files_avoid_or_survive_the_refused_pool
	sha256sum -c --quiet /run/n-sums
}
case_with_another_pools_port_silent_everything_else_goes_on() {
	# In the middle of a write to that pool: the write waits, nothing else does. (A stat of the file itself waits as well:
	# the client flushes what is dirty before it asks for the size. So the file lies in a directory of its own.)
	local f
	dd if=/dev/urandom of=/run/rnd bs=1M count=8 status=none
	find_silent_file
	f=$PWD/$(cat /run/silent-file)
	kc-hook port-drop $SILENT
	(dd if=/run/rnd of="$f" bs=64k conv=fsync status=none; echo $? >/run/dd-status) &
	sleep 1
	others_go_on silent
	echo "after $SECONDS s: all else went on"
	[ ! -e /run/dd-status ] || die "the write did not wait: it was not on its way to the silent pool"
	kc-hook port-open
	within 150 sh -c 'until [ -e /run/dd-status ]; do sleep 0.3; done'
	echo "after $SECONDS s: the write that waited has ended"
	same "status of the write that waited" "$(cat /run/dd-status)" 0
	kc-drop
	cmp "$f" /run/rnd
	cd ../files_lie_on_the_pool_and_elsewhere
	everything_holds
}

case_after_a_remount_the_pool_is_used_again() {
	# The client itself avoids a data server that failed for up to 120 s; a new mount forgets that.
	local before
	remount
	cd lost_pool/files_lie_on_the_pool_and_elsewhere
	kc-drop
	before=$(kc-hook pool-bytes $VICTIM)
	# The head, too, may avoid the pool for this client for a while after it was reported.
	within 150 sh -c "until cat $(tr '\n' ' ' </run/on-victim) >/dev/null; [ \$((\$(kc-hook pool-bytes $VICTIM) - $before)) -gt 200000 ]; do kc-drop; sleep 3; done"
}
