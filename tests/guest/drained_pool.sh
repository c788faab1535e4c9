# Two pools, one of which is drained while a kernel client reads and writes there. As documented: nothing fails, nothing is
# lost, the layouts come back within the time of a recall, and the client goes through the head.

VICTIM=$POOL_PORT

moved() { # to or from the pool since it stood at $1
	[ $(($(kc-hook pool-bytes $VICTIM) - $1)) -gt 200000 ]
}
read_back() { kc-drop; sha256sum -c --quiet /run/drained-sums; }

case_files_lie_on_the_pool() {
	local i before=$(kc-hook pool-bytes $VICTIM)
	for i in $(seq 12); do dd if=/dev/urandom of=d$i bs=256k count=1 conv=fsync status=none; done
	sha256sum d* >/run/drained-sums
	read_back
	moved "$before"
}
case_a_pool_is_drained_under_a_writer_and_a_reader() {
	local before files=../files_lie_on_the_pool
	# Files that stay open, so that their layouts are out.
	(for i in $(seq 200); do dd if=/dev/urandom of=$files/w bs=64k count=4 conv=fsync,notrunc status=none || exit 1; sleep 0.05; done
	 echo done >/run/writer) &
	exec 8<$files/d1 9<$files/d2
	head -c 65536 <&8 >/dev/null; head -c 65536 <&9 >/dev/null
	kc-hook drain
	within 60 sh -c "until kc-hook pools | grep -q 'pool-0 *drained'; do sleep 0.2; done"
	echo "drained after $SECONDS s"
	cat <&8 >/dev/null; cat <&9 >/dev/null
	wait
	same "the writer" "$(cat /run/writer)" done
	cd $files
	before=$(kc-hook pool-bytes $VICTIM)
	within 60 sh -c 'echo 3 >/proc/sys/vm/drop_caches; sha256sum -c --quiet /run/drained-sums'
	! moved "$before"
}
case_new_files_go_elsewhere() {
	local i before=$(kc-hook pool-bytes $VICTIM)
	for i in $(seq 8); do dd if=/dev/urandom of=n$i bs=256k count=1 conv=fsync status=none; done
	! moved "$before"
}
case_an_enabled_pool_is_used_again() {
	local before
	kc-hook enable
	remount
	cd drained_pool/files_lie_on_the_pool
	before=$(kc-hook pool-bytes $VICTIM)
	read_back
	moved "$before"
}
case_many_layouts_come_back_by_one_question_while_all_the_files_are_written() {
	local all each
	# About half of them lie on the pool: more than are asked for one by one.
	py "$GUEST/many_open_files.py" 240 /run/enough >/run/many &
	within 120 sh -c 'until grep -q open /run/many; do sleep 0.2; done'
	all=$(kc-hook recalls all_layouts)
	each=$(kc-hook recalls layout)
	kc-hook drain
	within 60 sh -c "until kc-hook pools | grep -q 'pool-0 *drained'; do sleep 0.2; done"
	echo "drained after $SECONDS s, $(kc-hook recalls layout) recalls of one layout, $each of them before"
	sleep 1
	touch /run/enough
	wait $! || die "the writer ended with $?"
	cat /run/many
	same "the writer" "$(sed -n 's/^\(done\) .*/\1/p' /run/many)" done
	same "questions for all layouts" $(($(kc-hook recalls all_layouts) - all)) 1
	# One that was granted as the pool was closed is asked for alone.
	[ $(($(kc-hook recalls layout) - each)) -le 16 ]
	kc-hook enable
}
