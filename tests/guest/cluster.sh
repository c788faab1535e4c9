# A head and three hosts with pools, each with a network of its own. pool-3 lies on a small disk. The head's own pool gets no
# new files, so that data goes to the hosts. Hosts are killed, stopped, cut off and filled under a kernel client: as
# documented, programs wait and see no errors, and what was acknowledged is there.

HOSTS="1 2 3"
KEPT=/run/cluster-sums

url() { echo "$HTTP${PWD#"$MNT"}/$1"; }
web() { curl -sS --cacert "$HTTP_CA" -u "$HTTP_LOGIN" "$@"; }
sums_hold() { kc-drop; within 120 sha256sum -c --quiet "$1"; }
refresh() { echo 3 >/proc/sys/vm/drop_caches; }       # not kc-drop: its sync would wait for a silent host

hosts() { kc-hook hosts "$@"; }
are() { hosts are "$@" || die "after $SECONDS s"; }        # SECONDS STANDING HOST...
new_files_go_to() { hosts place "$@"; }                    # HOST...: and to no other pool
start_host() { hosts begin "$1"; kc-hook server-start "$1"; hosts admitted "$1"; }

# Every case begins with this, so that it can run alone or after one that failed: all servers run and are reached, and the
# hosts get the new files.
cluster_is_up() {
	local n at=$PWD
	cd /
	if [ ! -e /run/all-is-well ]; then
		kc-hook server-runs 0 || kc-hook server-start 0
		hosts heal $HOSTS
		for n in $HOSTS; do if kc-hook server-runs "$n"; then kc-hook server-continue "$n"; else start_host "$n"; fi; done
		new_files_go_to $HOSTS
	fi
	rm -f /run/all-is-well
	trap '[ $? != 0 ] || touch /run/all-is-well' EXIT
	are 40 ready $HOSTS
	cd "$at"
	SECONDS=0
}

# The size of a file with which no other one of this group ends up, so that its replica is found on the hosts by it.
odd_size() { # KIB
	local n
	n=$(($(cat /run/odd 2>/dev/null || echo 0) + 1))
	echo $n >/run/odd
	echo $(($1 * 1024 + n))
}
size() { stat -c %s "$1"; }
pools_of() { hosts pools_of $(stat -c %s "$@"); }

# file_on HOST NAME KIB: a file of random bytes, synced, which the head placed there.
file_on() {
	local i j
	for i in $(seq 5); do
		for j in 1 2 3; do dd if=/dev/urandom of="$2.$j" bs="$(odd_size "$3")" count=1 iflag=fullblock conv=fsync status=none; done
		pools_of "$2".[123] >/run/pools
		j=$(sed -n "/^$1\$/=" /run/pools | head -1)
		[ -z "$j" ] || mv "$2.$j" "$2"
		rm -f "$2".[123]
		[ -z "$j" ] || return 0
	done
	die "no new file came to lie on pool-$1; the last ones lay on $(tr '\n' ' ' </run/pools)"
}

# writer FILE COPY: overwrites random places of FILE with fsync, and does the same to COPY in the guest's memory, until
# /run/enough is there or something fails. The file /run/writes counts what was acknowledged.
writer() {
	cp "$1" "$2"
	py - "$1" "$2" <<-'PY'
	import os, random, sys, time
	file, copy = (os.open(p, os.O_WRONLY) for p in sys.argv[1:3])
	size, count = os.stat(file).st_size, 0
	while not os.path.exists("/run/enough"):
	    data, at = os.urandom(65536), random.randrange(size - 65536)
	    t0 = time.monotonic()
	    assert os.pwrite(file, data, at) == len(data)
	    os.fsync(file)
	    if time.monotonic() > t0 + 1:
	        print("write %d took %.1f s" % (count, time.monotonic() - t0))
	    os.pwrite(copy, data, at)
	    count += 1
	    with open("/run/writes.new", "w") as f:
	        f.write(str(count))
	    os.rename("/run/writes.new", "/run/writes")
	    time.sleep(0.05)
	os.close(file)      # fails if something was lost after all
	print("%d writes" % count)
	PY
}
writes() { cat /run/writes; }

begin_writer() {
	echo 0 >/run/writes
	rm -f /run/enough
	writer "$@" >/run/writer 2>&1 &
	WRITER=$!
	within 30 bash -c 'until [ $(cat /run/writes) -gt 5 ]; do sleep 0.1; done'
}
# The writer ended well, and the file is as its copy, also from the disk.
end_writer() { # FILE COPY
	touch /run/enough
	wait "$WRITER" || { cat /run/writer; die "the writer ended with $?"; }
	cat /run/writer
	kc-drop
	within 60 cmp "$1" "$2"
}
writer_goes_on() { # after what was acknowledged so far
	local n=$(writes)
	within 90 bash -c "until [ \$(cat /run/writes) -gt $((n + 3)) ]; do sleep 0.1; done"
	echo "after $SECONDS s: the writer goes on"
}

case_hosts_join_by_a_token_and_new_files_lie_on_them() {
	local i n before after head_before
	cluster_is_up
	hosts status
	before=$(hosts client_bytes $HOSTS)
	head_before=$(kc-hook pool-bytes 2049)
	for i in $(seq 12); do dd if=/dev/urandom of=f$i bs="$(odd_size 1024)" count=1 iflag=fullblock conv=fsync status=none; done
	sha256sum "$PWD"/f* >$KEPT
	sums_hold $KEPT
	grep -q 'pnfs=LAYOUT_FLEX_FILES' /proc/self/mountstats
	after=$(hosts client_bytes $HOSTS)
	echo "the hosts saw $((after - before)) bytes, the head $(($(kc-hook pool-bytes 2049) - head_before))"
	[ $((after - before)) -ge $((2 * 12 * 1048576)) ] || die "the data did not go to the hosts"
	[ $(($(kc-hook pool-bytes 2049) - head_before)) -le 1048576 ] || die "data passed through the head"
	pools_of f* | sort | uniq -c >/run/spread
	cat /run/spread
	for n in 1 2; do grep -q " $n\$" /run/spread || die "pool-$n got no file"; done
	! grep -q ' 0$' /run/spread || die "a file lies on the drained pool of the head"
}
case_http_gets_and_puts_files_on_the_hosts_through_the_head() {
	local i d=../hosts_join_by_a_token_and_new_files_lie_on_them
	cluster_is_up
	file_on 1 f 1024
	same "by HTTP" "$(web -f "$(url f)" | sha256sum)" "$(sha256sum <f)"
	same "a range by HTTP" "$(web -f -r 1000-99999 "$(url f)" | sha256sum)" "$(tail -c +1001 f | head -c 99000 | sha256sum)"
	for i in $(seq 4); do
		head -c "$(odd_size 3000)" /dev/urandom >/run/put
		same "PUT p$i" "$(web -o /dev/null -w '%{http_code}' -T /run/put "$(url p$i)")" 201
		cmp p$i /run/put
	done
	pools_of p* >/run/pools
	! grep 0 /run/pools || die "what was put lies on the drained pool of the head"
}
case_a_host_is_killed_under_a_writer_and_started_again() {
	cluster_is_up
	file_on 1 f 8192
	begin_writer "$PWD/f" /run/copy
	(cd /; kc-hook server-kill 1; sleep 2; start_host 1)
	writer_goes_on
	are 30 ready 1
	end_writer f /run/copy
	same "pool of the file" "$(pools_of f)" 1
	[ ! -e $KEPT ] || sums_hold $KEPT
}
case_a_host_is_stopped_for_15_s_under_a_writer() {
	local at=$PWD i
	cluster_is_up
	mkdir d
	for i in $(seq 4); do file_on 2 d/f$i 512; done
	(cd d; sha256sum f* >/run/d-sums)
	file_on 2 f 8192
	begin_writer "$PWD/f" /run/copy
	SECONDS=0
	(cd /; kc-hook server-pause 2)
	# While the pool may hold a lease, and after that.
	for word in suspect out; do
		refresh
		within 8 ls -l d; echo "after $SECONDS s: ls -l"
		within 8 df . >/dev/null; echo "after $SECONDS s: df"
		within 8 curl -sS --cacert "$HTTP_CA" -u "$HTTP_LOGIN" -f -o /dev/null -X PROPFIND -H 'Depth: 1' "$(url d/)"
		echo "after $SECONDS s: PROPFIND"
		are 20 $word 2
	done
	within 20 dd if=/dev/urandom of=new bs="$(odd_size 512)" count=1 iflag=fullblock conv=fsync status=none
	echo "after $SECONDS s: a new file is on pool-$(pools_of new)"
	sleep $((SECONDS < 15 ? 15 - SECONDS : 0))
	(cd /; kc-hook server-continue 2)
	are 30 ready 2
	writer_goes_on
	end_writer f /run/copy
	cd d
	sums_hold /run/d-sums
}
case_the_head_is_killed_under_a_writer_and_a_reader() {
	cluster_is_up
	file_on 1 f 8192
	file_on 2 g 2048
	sha256sum g >/run/g-sum
	begin_writer "$PWD/f" /run/copy
	# Until the writer has enough, too.
	(while [ ! -e /run/enough ]; do refresh; sha256sum -c --quiet /run/g-sum || exit 1; sleep 0.1; done) >/run/reader 2>&1 &
	READER=$!
	sleep 2
	(cd /; kc-hook server-kill 0; sleep 1; kc-hook server-start 0)
	are 40 ready $HOSTS
	writer_goes_on
	end_writer f /run/copy
	wait $READER || { cat /run/reader; die "the reader ended with $?"; }
	[ ! -e $KEPT ] || sums_hold $KEPT
}
case_hosts_without_their_head_take_no_writes_and_writers_wait() {
	# The client reaches both hosts all the time. No error at the programs, and nothing is lost.
	local was bytes n
	cluster_is_up
	file_on 1 f 4096
	bytes=$(size f)                          # later a look at the file would wait for what is written
	file_on 2 g 8192
	exec 7<>f
	head -c 100000 /dev/urandom >&7
	within 30 sync f                         # a layout to write is out
	was=$(hosts replica_sum 1 "$bytes")
	same "replica" "$was" "$(sha256sum <f | cut -d' ' -f1)"
	begin_writer "$PWD/g" /run/copy
	(cd /; hosts cut 1; hosts cut 2)
	are 30 out 1 2
	sleep 1
	# The pool's lease is over by its own clock, too.
	head -c 300000 /dev/urandom >/run/late
	py - <<-'PY' >/run/late-writer 2>&1 &
	import os, time
	t0 = time.monotonic()
	os.pwrite(7, open("/run/late", "rb").read(), 1000000)
	os.fsync(7)
	print("written after %.1f s" % (time.monotonic() - t0))
	PY
	n=$!
	refresh
	within 20 dd if=/dev/urandom of=new bs="$(odd_size 512)" count=1 iflag=fullblock conv=fsync status=none
	same "pool of a new file" "$(hosts pools_of "$(size new)")" 3
	sleep 5
	[ -d /proc/$n ] || { cat /run/late-writer; die "the write did not wait"; }
	same "replica without its head" "$(hosts replica_sum 1 "$bytes")" "$was"
	(cd /; hosts heal 1 2)
	are 40 ready 1 2
	wait $n || { cat /run/late-writer; die "the write failed"; }
	cat /run/late-writer
	exec 7>&-
	writer_goes_on
	end_writer g /run/copy
	same "what was written late" "$(tail -c +1000001 f | head -c 300000 | sha256sum)" "$(sha256sum </run/late)"
}
case_a_restart_of_all_keeps_files_and_removed_ones_free_space() {
	local n bytes
	cluster_is_up
	for n in 1 2; do file_on "$n" f$n 2048; done
	new_files_go_to 3                        # seldom by itself: its disk is small
	file_on 3 f3 2048
	new_files_go_to $HOSTS
	sha256sum "$PWD"/f* >/run/restart-sums
	(
		cd /
		for n in $HOSTS; do kc-hook server-stop "$n"; done
		are 10 suspect,out $HOSTS
		kc-hook server-stop 0
		kc-hook server-start 0
		for n in $HOSTS; do start_host "$n"; done
	)
	sums_hold /run/restart-sums
	(
		cd /
		for n in 0 $HOSTS; do kc-hook server-stop "$n"; done
		# Hosts that start first wait for their head.
		for n in $HOSTS; do hosts begin "$n"; kc-hook server-start "$n"; done
		sleep 2
		kc-hook server-start 0
		hosts admitted $HOSTS
	)
	are 40 ready $HOSTS
	sums_hold /run/restart-sums
	[ ! -e $KEPT ] || sums_hold $KEPT
	bytes=$(stat -c %s f*)
	rm f*
	hosts sizes_are_gone 90 $bytes
}
case_fsck_beside_the_head_and_without_it_finds_no_lost_files() {
	local n
	cluster_is_up
	for n in 1 2; do file_on "$n" f$n 512; done
	hosts fsck || die "beside the running head: status $?"
	(
		cd /
		kc-hook server-stop 0
		hosts fsck || { kc-hook server-start 0; die "without the head: status $?"; }
		kc-hook server-start 0
	)
	are 40 ready $HOSTS
}
case_a_full_disk_of_one_host_says_enospc_only_when_no_other_has_room() {
	local i
	cluster_is_up
	# The others have nothing to do with it.
	new_files_go_to 3
	rm -f /run/full-sums
	for i in $(seq 60); do
		if ! dd if=/dev/urandom of=f$i bs="$(odd_size 6144)" count=1 iflag=fullblock conv=fsync status=none 2>/run/err; then break; fi
		sha256sum f$i >>/run/full-sums
	done
	cat /run/err
	grep -q 'No space left on device' /run/err || die "the disk never said ENOSPC, or said something else"
	echo "$(wc -l </run/full-sums) files fitted"
	[ "$(wc -l </run/full-sums)" -ge 4 ] || die "it was full too early"
	sums_hold /run/full-sums
	new_files_go_to $HOSTS
	for i in $(seq 6); do
		within 60 dd if=/dev/urandom of=n$i bs="$(odd_size 6144)" count=1 iflag=fullblock conv=fsync status=none
	done
	pools_of n* >/run/pools
	! grep 3 /run/pools || die "a new file was placed on the full disk"
	sha256sum n* >>/run/full-sums
	sums_hold /run/full-sums
	rm f*
	new_files_go_to 3
	within 90 bash -c 'until dd if=/dev/urandom of=again bs=1M count=8 iflag=fullblock conv=fsync 2>/dev/null; do rm -f again; sleep 0.5; done'
	new_files_go_to $HOSTS
	[ ! -e $KEPT ] || sums_hold $KEPT
}
