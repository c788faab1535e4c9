# The servers' disk is small. It may fill up; it may not lose or invent anything, and it must recover.

fill() { # fill NAME: 4 MiB files until the first refusal; the sums of those that were fsynced go to /run/sums
	local i
	for i in $(seq 200); do
		py - "$1$i" <<-'PY' 2>/run/err || { cat /run/err; break; }
		import errno, os, sys
		name = sys.argv[1]
		try:
		    fd = os.open(name, os.O_CREAT | os.O_WRONLY)
		    os.write(fd, os.urandom(16) * (4 << 16)); os.fsync(fd); os.close(fd)
		except OSError as e:
		    sys.exit("%s: %s" % (name, errno.errorcode[e.errno]))
		PY
		sha256sum "$1$i" >>/run/sums
	done
	grep -q ENOSPC /run/err || { cat /run/err; die "the disk never said ENOSPC, or said something else"; }
}

case_a_full_disk_says_enospc_and_keeps_what_it_acknowledged() {
	echo early >early; sync early
	fill f
	same early "$(cat early)" early
	kc-drop
	sha256sum -c --quiet /run/sums
	echo "$(wc -l </run/sums) files of 4 MiB fitted; df: $(df -m . | tail -1)"
	[ "$(wc -l </run/sums)" -ge 10 ] || die "it was full too early"
}

case_a_full_disk_still_lists_reads_renames_and_removes() {
	cd ../a_full_disk_says_enospc_and_keeps_what_it_acknowledged
	within 20 ls -l >/dev/null
	mv f1 g1
	within 20 cat g1 >/dev/null
	within 20 rm g1
	same gone "$(ls | grep -c '^g1$' || true)" 0
}

case_after_removing_files_writing_works_again() {
	cd ../a_full_disk_says_enospc_and_keeps_what_it_acknowledged
	rm f[2-9]
	# The pool may free the blocks a moment after the name is gone.
	within 30 sh -c 'until dd if=/dev/urandom of=again bs=1M count=8 conv=fsync 2>/dev/null; do rm -f again; sleep 0.5; done'
	same size "$(stat -c %s again)" 8388608
}

case_everything_acknowledged_is_there_after_a_restart() {
	cd /
	kc-hook server-stop
	kc-hook server-start
	remount
	cd full_disk/a_full_disk_says_enospc_and_keeps_what_it_acknowledged
	same early "$(cat early)" early
	grep -v ' f[1-9]$' /run/sums >/run/left
	[ -s /run/left ]
	sha256sum -c --quiet /run/left
	same "size of again" "$(stat -c %s again)" 8388608
}
