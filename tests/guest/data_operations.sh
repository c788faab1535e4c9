# What NFSv4.2 has beyond reading and writing, as programs ask for it: the server does it, and the client says that it asked.

op_count() { awk -v m="$MNT" -v o="$1:" '/^device/ {on = ($5 == m)} on && $1 == o {n = $2} END {print n + 0}' /proc/self/mountstats; }
# asked OPERATION COMMAND...: the command must succeed, and make the client send the operation.
asked() {
	local op=$1 before
	shift
	before=$(op_count "$op")
	"$@" || die "'$*' failed"
	[ "$(op_count "$op")" -gt "$before" ] || die "'$*' sent no $op"
}
used() { stat -c '%b %B' "$1" | awk '{print $1 * $2}'; }
random() { dd if=/dev/urandom of="$1" bs=1M count="$2" conv=fsync status=none; }

case_fallocate_reserves_space_and_makes_the_file_longer() {
	printf head >f
	asked ALLOCATE fallocate -l 16M f
	same size "$(stat -c %s f)" 16777216
	[ "$(used f)" -ge 16777216 ] || die "$(used f) bytes are reserved"
	same head "$(head -c 4 f)" head
	same rest "$(tail -c +5 f | tr -d '\0' | wc -c)" 0
	refused "No space left" fallocate -l 900T g
	kc-drop
	same size "$(stat -c %s f)" 16777216
}

case_fallocate_punches_holes_that_give_space_back() {
	local before
	random f 16
	cp f /run/want
	before=$(used f)
	asked DEALLOCATE fallocate -p -o 1M -l 8M f
	fallocate -p -o 1M -l 8M /run/want
	asked DEALLOCATE fallocate -p -o 12345678 -l 1000 f
	fallocate -p -o 12345678 -l 1000 /run/want
	kc-drop
	cmp f /run/want
	[ $((before - $(used f))) -ge 8000000 ] || die "$before bytes before, $(used f) after"
	rm /run/want
}

case_lseek_finds_data_and_holes() {
	py - <<-'PY'
	import os
	n = 1 << 20
	with open("f", "wb") as f:
	    f.truncate(8 * n)
	    f.seek(2 * n); f.write(b"x" * n)
	PY
	kc-drop
	asked SEEK py - <<-'PY'
	import errno, os
	n = 1 << 20
	fd = os.open("f", os.O_RDONLY)
	seek = lambda at, how: os.lseek(fd, at, how)
	assert seek(0, os.SEEK_DATA) == 2 * n
	assert seek(2 * n, os.SEEK_HOLE) == 3 * n
	assert seek(0, os.SEEK_HOLE) == 0
	assert seek(4 * n, os.SEEK_HOLE) == 4 * n
	for at, how in ((3 * n, os.SEEK_DATA), (8 * n, os.SEEK_HOLE), (9 * n, os.SEEK_DATA)):
	    try:
	        raise SystemExit("%d: found %d" % (at, seek(at, how)))
	    except OSError as e:
	        assert e.errno == errno.ENXIO, e
	PY
	# What GNU tar and cp look for.
	tar cSf /run/sparse.tar f
	[ "$(stat -c %s /run/sparse.tar)" -le 2000000 ] || die "tar found no holes"
	rm /run/sparse.tar
}

# A COPY may answer with less than was asked for: the program asks on.
case_copy_file_range_copies_within_the_server() {
	local i
	random source 24
	for i in 1 2 3 4; do
		: >"target$i"
		asked COPY py - "target$i" <<-'PY'
		import os, sys
		a, b = os.open("source", os.O_RDONLY), os.open(sys.argv[1], os.O_WRONLY)
		left = os.fstat(a).st_size
		while left:
		    n = os.copy_file_range(a, b, left)
		    assert n > 0, left
		    left -= n
		# Over what is there, and not aligned.
		assert os.copy_file_range(a, b, 5000, 777, 1000001) == 5000
		os.close(b)
		PY
	done
	cp source /run/want
	dd if=source of=/run/want bs=1 skip=777 seek=1000001 count=5000 conv=notrunc status=none
	kc-drop
	for i in 1 2 3 4; do cmp "target$i" /run/want; done
	rm /run/want
	# Within one file, where nothing overlaps.
	py -c '
import errno, os
f = os.open("source", os.O_RDWR)
want = os.pread(f, 4096, 0)
assert os.copy_file_range(f, f, 4096, 0, 1 << 20) == 4096
assert os.pread(f, 4096, 1 << 20) == want
try:
    raise SystemExit(os.copy_file_range(f, f, 8192, 0, 4096))
except OSError as e:
    assert e.errno == errno.EINVAL, e'
}

case_cp_copies_within_the_server_and_keeps_holes() {
	local got
	random whole 12
	kc-drop
	got=$(awk -v m="$MNT" '/^device/ {on = ($5 == m)} on && $1 == "bytes:" {print $6}' /proc/self/mountstats)
	asked COPY cp --reflink=auto --sparse=auto whole copy
	got=$(($(awk -v m="$MNT" '/^device/ {on = ($5 == m)} on && $1 == "bytes:" {print $6}' /proc/self/mountstats) - got))
	[ $got -le 1048576 ] || die "the client read $got bytes"
	kc-drop
	cmp whole copy
	truncate -s 256M sparse
	dd if=whole of=sparse bs=1M count=1 seek=200 conv=notrunc,fsync status=none
	cp --reflink=auto sparse copy
	kc-drop
	cmp sparse copy
	[ "$(used copy)" -le 4194304 ] || die "a copy of 1 MiB and holes occupies $(used copy) bytes"
}

case_reserved_punched_and_copied_files_survive_a_server_restart() {
	mkdir done
	random done/source 8
	fallocate -l 4M done/reserved
	cp done/source done/punched
	fallocate -p -o 1M -l 2M done/punched
	cp --reflink=auto done/source done/copy
	sync
	keep done
	cd /
	kc-hook server-kill
	kc-hook server-start
	remount
	kc-drop
	verify_kept
}
