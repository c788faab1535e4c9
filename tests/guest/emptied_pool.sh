# Two pools, one of which is emptied while a kernel client reads and writes there: no call fails, no byte is lost, and in the
# end no replica is left on it. The server is killed in the middle of it.

left() { kc-hook left; }
# sums FILE: of all files but those of the writer.
sums() { find . -type f ! -name 'w*' -print0 | LC_ALL=C sort -z | xargs -0 sha256sum >"$1"; }

case_files_lie_on_both_pools() {
	local i
	mkdir deep small
	for i in $(seq 16); do dd if=/dev/urandom of=deep/f$i bs=1M count=$((i % 5 + 1)) status=none; done
	for i in $(seq 200); do head -c $((i * 37)) /dev/urandom >small/f$i; done
	truncate -s 64M sparse
	dd if=/dev/urandom of=sparse bs=64k count=1 seek=500 conv=notrunc status=none
	dd if=/dev/urandom of=end bs=1000 count=1 seek=5000 status=none
	ln deep/f1 linked
	touch empty
	sync
	sums /run/emptied-sums
	[ "$(left)" -gt 50 ]
}
case_a_pool_is_emptied_under_readers_and_a_writer() {
	cd ../files_lie_on_both_pools
	grep -v ' \./small/' /run/emptied-sums >/run/emptied-kept
	# Keeps some files open, writes others again and again, and remembers what it wrote last.
	py "$GUEST/emptied_pool.py" write . /run/enough >/run/writer &
	(while [ ! -e /run/enough ]; do
		echo 3 >/proc/sys/vm/drop_caches
		sha256sum -c --quiet /run/emptied-kept || exit 1
	done
	echo done >/run/reader) &
	exec 8<deep/f5
	head -c 65536 <&8 >/dev/null
	kc-hook drain
	sleep 2
	kc-hook server-kill
	kc-hook server-start
	sleep 2
	rm -r small
	echo "after the kill: $(kc-hook pools | grep pool-0)"
	sleep 1
	touch /run/enough
	wait
	cat <&8 >/dev/null
	exec 8<&-
	cat /run/writer
	same "the reader" "$(cat /run/reader)" done
	same "the writer" "$(tail -n 1 /run/writer)" done
	within 120 sh -c "until kc-hook pools | grep -q 'pool-0 *drained, no file is left'; do sleep 0.5; done"
	echo "emptied after $SECONDS s: $(kc-hook pools | grep pool-0)"
	same "replicas that are left" "$(left)" 0
}
case_all_files_are_as_they_were() {
	cd ../files_lie_on_both_pools
	kc-drop
	sha256sum -c --quiet /run/emptied-kept
	py "$GUEST/emptied_pool.py" verify . /run/writer
	same "the size of the sparse file" "$(stat -c %s sparse)" $((64 << 20))
	[ "$(stat -c %b sparse)" -lt 20000 ] || die "the holes are filled: $(stat -c %b sparse) blocks"
	remount
	cd "$MNT/emptied_pool/files_lie_on_both_pools"
	sha256sum -c --quiet /run/emptied-kept
	echo more >>linked
	same "what is written since" "$(tail -c 5 deep/f1)" more
}
case_an_enabled_pool_gets_files_again() {
	local i
	kc-hook enable
	within 60 sh -c "until kc-hook pools | grep -q 'pool-0 *enabled'; do sleep 0.2; done"
	for i in $(seq 40); do head -c 100000 /dev/urandom >n$i; done
	sync
	[ "$(left)" -gt 0 ]
	sha256sum n* >/run/enabled-sums
	# And back to where they were: their ids were there before.
	kc-hook drain-other
	within 120 sh -c "until kc-hook pools | grep -q 'pool-1 *drained, no file is left'; do sleep 0.5; done"
	kc-drop
	sha256sum -c --quiet /run/enabled-sums
	cd ../files_lie_on_both_pools
	grep -v -e deep/f1 -e linked /run/emptied-kept | sha256sum -c --quiet -
	kc-hook enable-other
}
