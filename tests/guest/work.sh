# Real work on the mount. $TREE is a tar of more than 5,000 files; the last two cases read everything back.

case_untar_of_a_tree_of_5000_files() {
	tar xf "$TREE"
	same files "$(find tree -type f | wc -l)" 5200
	same bytes "$(find tree -type f -printf '%s\n' | awk '{n += $1} END {print n}')" \
		"$(tar tvf "$TREE" | awk '/^-/ {n += $3} END {print n}')"
	# What the client has is what the archive has, times and modes included.
	tar df "$TREE" 2>&1 | grep -v 'Uid differs\|Gid differs' | tee diff
	[ ! -s diff ]
	rm diff
	keep tree
}

case_cp_a_keeps_everything() {
	cp -a ../untar_of_a_tree_of_5000_files/tree/[a-h]* .
	(cd ../untar_of_a_tree_of_5000_files/tree && find [a-h]* -printf '%p|%y|%m|%s|%T@|%l\n' | grep -v '|d|' | LC_ALL=C sort) >/run/from
	find * -printf '%p|%y|%m|%s|%T@|%l\n' | grep -v '|d|' | LC_ALL=C sort >/run/to
	[ -s /run/from ]
	diff /run/from /run/to | head
	cmp /run/from /run/to
	diff -r ../untar_of_a_tree_of_5000_files/tree/block1 block1 2>/dev/null || [ ! -e block1 ]
	keep .
}

case_rsync_a_the_second_time_transfers_nothing() {
	mkdir /run/src
	tar xf "$TREE" -C /run/src --wildcards 'tree/[i-l]*'
	rsync -a /run/src/ copy/
	rsync -a --stats /run/src/ copy/ >second
	grep -q 'Number of regular files transferred: 0$' second || { cat second; die "the second rsync transferred files"; }
	# With checksums too: the bytes arrived, not only sizes and times.
	rsync -a --checksum --itemize-changes /run/src/ copy/ >third
	[ ! -s third ] || { head third; die "rsync --checksum found differences"; }
	rm -r /run/src second third
	keep copy
}

case_git_clone_status_and_gc() {
	export GIT_CONFIG_COUNT=3 GIT_CONFIG_KEY_0=user.name GIT_CONFIG_VALUE_0=t GIT_CONFIG_KEY_1=user.email \
		GIT_CONFIG_VALUE_1=t@example.org GIT_CONFIG_KEY_2=safe.directory GIT_CONFIG_VALUE_2='*'
	git init -q --bare -b main origin.git
	mkdir /run/w && tar xf "$TREE" -C /run/w --wildcards 'tree/[m-n]*'
	(
		cd /run/w && git init -q -b main . && git add -A && git commit -q -m one
		for i in 1 2 3 4 5; do find . -name '*.md' -not -path './.git/*' -exec sh -c "echo $i >>{}" \; ; git commit -qam "change $i"; done
		git push -q "$OLDPWD/origin.git" main
	)
	git clone -q origin.git clone
	cd clone
	same "git status" "$(git status --porcelain)" ""
	same "tree" "$(git rev-parse 'HEAD^{tree}')" "$(git -C /run/w rev-parse 'HEAD^{tree}')"
	git gc -q
	git fsck --full
	echo more >>new-file && git add new-file && git commit -q -m more && git push -q origin main
	same "git status after gc" "$(git status --porcelain)" ""
	cd .. && rm -rf /run/w
	keep clone
}

case_a_python_virtual_environment_is_created_and_used() {
	/usr/bin/python3 -m venv --without-pip env
	mkdir pkg && tar cf - -C /usr/lib/python3.*/ json email | tar xf - -C "$(echo env/lib/python3.*/site-packages)"
	mv "$(echo env/lib/python3.*/site-packages)/json" "$(echo env/lib/python3.*/site-packages)/forebay_json"
	env/bin/python -m compileall -q env/lib
	same answer "$(env/bin/python -c 'import sys, forebay_json; print(sys.prefix != sys.base_prefix, forebay_json.dumps([1]))')" "True [1]"
	env/bin/python -c 'import forebay_json; assert "/env/lib/" in forebay_json.__file__, forebay_json.__file__'
	keep env
}

case_a_sqlite_database_written_by_two_processes_loses_nothing() {
	py "$GUEST/sqlite_writers.py" db
	keep .
}

case_mmap_writes_arrive() {
	py - <<-'PY'
	import hashlib, mmap, os
	n = 8 << 20
	with open("mapped", "w+b") as f:
	    f.truncate(n)
	    m = mmap.mmap(f.fileno(), n)
	    for i in range(0, n, 4096):
	        m[i:i + 8] = i.to_bytes(8, "big")
	    m.flush()
	    m[100:105] = b"after"
	    m.close()
	want = bytearray(n)
	for i in range(0, n, 4096):
	    want[i:i + 8] = i.to_bytes(8, "big")
	want[100:105] = b"after"
	open("want", "wb").write(want)
	PY
	kc-drop
	cmp mapped want
	keep .
}

case_append_by_two_processes_loses_no_line() {
	for p in a b; do
		py -c '
import os, sys
fd = os.open("log", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
for i in range(1500):
    line = b"%s %06d\n" % (sys.argv[1].encode(), i)
    assert os.write(fd, line) == len(line)
    if i % 100 == 0: os.fsync(fd)
os.close(fd)' $p &
	done
	wait
	kc-drop
	same lines "$(wc -l <log)" 3000
	for p in a b; do
		grep "^$p " log >/run/one
		seq -f "$p %06.0f" 0 1499 | cmp - /run/one
	done
	keep .
}

case_a_sparse_file_keeps_its_holes() {
	py - <<-'PY'
	with open("sparse", "wb") as f:
	    f.write(b"head" * 1024)
	    f.seek(200 << 20)
	    f.write(b"tail" * 1024)
	    f.truncate(256 << 20)
	PY
	sync
	kc-drop
	same size "$(stat -c %s sparse)" 268435456
	local used=$(($(stat -c '%b * %B' sparse)))
	[ $used -le 1048576 ] || die "256 MiB with 8 KiB of data occupy $used bytes"
	same head "$(head -c 8 sparse)" headhead
	same "tail" "$(dd if=sparse bs=4096 skip=51200 count=1 status=none | head -c 8)" tailtail
	same "hole" "$(dd if=sparse bs=1M skip=100 count=2 status=none | tr -d '\0' | wc -c)" 0
	keep .
}

case_ten_thousand_names_are_listed_while_being_removed() {
	py "$GUEST/list_while_removing.py" big 10000
}

case_large_files_keep_their_bytes() {
	py -c '
import random
r = random.Random(7)
for n in range(6):
    with open("f%d" % n, "wb") as f:
        for _ in range(24): f.write(r.randbytes(1 << 20))
        f.write(r.randbytes(12345 + n))'
	# Overwrite in the middle, not aligned, and cut one short.
	dd if="$TREE" of=f1 bs=1000 seek=777 count=3000 conv=notrunc status=none
	truncate -s 1000001 f2
	truncate -s 40000000 f3
	same "f2" "$(stat -c %s f2)" 1000001
	same "f3 grown with zeros" "$(tail -c 1000000 f3 | tr -d '\0' | wc -c)" 0
	same "f1 overwritten" "$(dd if=f1 bs=1000 skip=777 count=3000 status=none | sha256sum)" "$(dd if="$TREE" bs=1000 count=3000 status=none | sha256sum)"
	keep .
}

case_everything_reads_back_the_same_after_a_remount() { remount; verify_kept; }

case_everything_reads_back_the_same_after_a_server_restart() {
	cd /
	kc-hook server-stop
	kc-hook server-start
	remount
	kc-drop
	verify_kept
}

case_removing_it_all_leaves_an_empty_directory() {
	cd ..
	rm -rf untar_* cp_a_* rsync_* git_* a_python*
	same left "$(ls -d untar_* cp_a_* rsync_* git_* a_python* 2>/dev/null | wc -l)" 0
}

case_no_pool_was_spoken_to() {
	case $(lsmod) in *nfs_layout*) skip "this client has a layout driver" ;; esac
	same "connections to the pool" "$(kc-hook pool-clients "$POOL_PORT")" 0
	grep -q 'pnfs=not configured' /proc/self/mountstats
}
