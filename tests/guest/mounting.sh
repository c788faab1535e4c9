# Which way the bytes go. $POOLS pools, each on a port of its own from $POOL_PORT on.

# What the client counts for the mount at $1; flex-files counts reads and writes at the pools here, too.
mounts_block() { awk -v m="$1" '/^device/ {on = ($5 == m)} on' /proc/self/mountstats; }
op_count() { mounts_block "$1" | awk -v o="$2:" '$1 == o {print $2}'; }

HEAD_PORT=$(echo "$SPEC" | cut -d: -f2)
pool_bytes() { local i n=0; for i in $(seq 0 $((POOLS - 1))); do n=$((n + $(kc-hook pool-bytes $((POOL_PORT + i))))); done; echo $n; }

uses_flex_files() {
	local vers=$1 m=/mnt/$1 before head_before got head_got
	mkdir -p "$m"
	kc-mount "$SPEC" "$m" "vers=$vers"
	trap "umount $m" EXIT
	mounts_block "$m" | grep -q 'pnfs=LAYOUT_FLEX_FILES' || die "$(mounts_block "$m" | grep nfsv4:)"
	mounts_block "$m" | grep "vers=$vers" >/dev/null
	before=$(pool_bytes); head_before=$(kc-hook pool-bytes "$HEAD_PORT")
	mkdir "$m/flex-$vers"
	for i in $(seq 12); do dd if=/dev/urandom of="$m/flex-$vers/f$i" bs=1M count=2 conv=fsync status=none; done
	(cd "$m/flex-$vers" && sha256sum f*) >/run/sums
	kc-drop
	(cd "$m/flex-$vers" && sha256sum -c --quiet /run/sums)
	# LAYOUTGET rides on OPEN, where the client does not count it, unless pages are cached; then it comes with the first READ.
	(exec 5<"$m/flex-$vers/f1"; kc-drop; sha256sum <&5)
	got=$(($(pool_bytes) - before)); head_got=$(($(kc-hook pool-bytes "$HEAD_PORT") - head_before))
	mounts_block "$m" | grep -E 'nfsv4:|events:|bytes:|^\s+(READ|WRITE|OPEN|CLOSE|LAYOUT[A-Z]*|GETDEVICEINFO):'
	[ "$(op_count "$m" LAYOUTGET)" -gt 0 ] || die "no LAYOUTGET"
	[ "$got" -ge $((2 * 24 * 1048576)) ] || die "the pools' ports saw $got bytes of $((2 * 24 * 1048576))"
	[ "$head_got" -le 1048576 ] || die "the head's port saw $head_got bytes: data passed through it"
	echo "the pools' ports saw $got bytes, the head's $head_got"
}

case_a_mount_with_vers_4_1_uses_flex_files_and_the_pools() { uses_flex_files 4.1; }
case_a_mount_with_vers_4_2_uses_flex_files_and_the_pools() { uses_flex_files 4.2; }

case_files_spread_over_all_pools() {
	local i
	for i in $(seq $((POOLS * 12))); do dd if=/dev/urandom of=s$i bs=256k count=2 conv=fsync status=none; done
	for i in $(seq 0 $((POOLS - 1))); do
		echo "pool $i: $(kc-hook pool-bytes $((POOL_PORT + i))) bytes on the wire"
		[ "$(kc-hook pool-bytes $((POOL_PORT + i)))" -gt 1048576 ] || die "pool $i was left out"
	done
}

case_layouts_come_with_the_open() {
	# RFC 8881 16.2.3.1.2: LAYOUTGET inside OPEN's compound with the current stateid. It then costs no call of its own.
	local a b
	for i in $(seq 20); do dd if=/dev/zero of=n$i bs=64k count=1 status=none; done
	kc-drop
	a=$(op_count $MNT LAYOUTGET)
	cat n* >/dev/null
	b=$(op_count $MNT LAYOUTGET)
	echo "LAYOUTGET calls of their own for 20 files: $((b - a))"
	[ $((b - a)) -le 2 ] || die "LAYOUTGET does not ride on OPEN"
}

layout_calls() { echo $(($(op_count $MNT LAYOUTGET) + $(op_count $MNT LAYOUTCOMMIT) + $(op_count $MNT LAYOUTRETURN))); }

case_small_files_cost_no_layout() {
	# RFC 8881 5.12.4: the client heeds mdsthreshold, and writes and reads through the head.
	local before sent
	before=$(layout_calls); sent=$(pool_bytes)
	for i in $(seq 20); do dd if=/dev/urandom of=n$i bs=30000 count=1 status=none; done
	sha256sum n* >/run/small-sums
	kc-drop
	sha256sum -c --quiet /run/small-sums
	echo "calls for layouts: $(($(layout_calls) - before)), bytes at the pools' ports: $(($(pool_bytes) - sent))"
	[ "$(layout_calls)" = "$before" ] && [ $(($(pool_bytes) - sent)) -lt 100000 ]
	# The same file has a layout as soon as it is large.
	dd if=/dev/urandom of=n1 bs=1M count=1 conv=fsync status=none
	[ $(($(pool_bytes) - sent)) -ge 1048576 ] || die "a large file was not written at the pool"
}

case_one_getdeviceinfo_per_pool_is_enough() {
	local i n
	for i in $(seq 10); do dd if=/dev/zero of=d$i bs=64k count=1 status=none; cat d$i >/dev/null; done
	n=$(op_count $MNT GETDEVICEINFO)
	[ "$n" -le "$POOLS" ] || die "$n GETDEVICEINFO for $POOLS pools"
}

case_a_second_mount_of_a_subdirectory_works() {
	mkdir -p sub/dir && echo in >sub/dir/f
	mkdir -p /mnt/sub
	kc-mount "$SPEC$(basename "$(dirname "$PWD")")/$(basename "$PWD")/sub" /mnt/sub "$OPTS"
	trap "umount /mnt/sub" EXIT
	same content "$(cat /mnt/sub/dir/f)" in
	refused "" busybox mount -t nfs4 -o "vers=4.2,addr=$KC_SERVER,clientaddr=$KC_IP,sec=sys" "$KC_SERVER:/not/there" /mnt
}

case_two_idle_leases_keep_locks_and_sessions() {
	# Twice the lease without any call but the client's own renewals.
	py - <<-'PY'
	import fcntl, os, time
	f = open("held", "w+b"); fcntl.lockf(f, fcntl.LOCK_EX)
	f.write(b"before"); f.flush(); os.fsync(f.fileno())
	time.sleep(2 * int(os.environ["LEASE_S"]) + 1)
	f.write(b" after"); f.flush(); os.fsync(f.fileno())
	f.seek(0); assert f.read() == b"before after"
	PY
	if dmesg | grep -i 'lost\|expired\|reclaim failed'; then die "the client lost state"; fi
}
