# What POSIX promises about names, types, links, times and permissions, seen by one client.

case_names_of_255_bytes_and_beyond_ascii() {
	local long=$(printf 'n%.0s' $(seq 255)) wide=$(printf 'ü%.0s' $(seq 127))
	echo long >"$long"
	refused "File name too long" touch "${long}n"
	refused "File name too long" mkdir "${wide}üü"
	local names=("$long" "$wide" "grüße" "日本語" "Ελλάδα" "emoji-🌊" "with space" $'new\nline' 'back\slash' '*' '"quoted"' '-dash' '.hidden' 'a:b|c;d')
	for n in "${names[@]}"; do echo "content of $n" >"./$n"; mkdir "dir-${n:0:50}"; done
	kc-drop
	for n in "${names[@]}"; do same "content" "$(cat "./$n")" "content of $n"; done
	same listed "$(find . -mindepth 1 -print0 | tr -dc '\0' | wc -c)" $((2 * ${#names[@]}))
	# Two spellings of one letter are two names: the server keeps the bytes it was given.
	echo one >$'e\u0301'; echo two >$'\u00e9'
	same "composed and decomposed" "$(cat $'e\u0301' $'\u00e9' | tr '\n' ' ')" "one two "
}

case_hard_links_share_one_inode() {
	echo x >a
	ln a b; mkdir d; ln a d/c
	same links "$(stat -c %h a)" 3
	same inode "$(stat -c %i b d/c | sort -u | wc -l)" 1
	chmod 640 b; echo y >>d/c
	same mode "$(stat -c %a a)" 640
	same content "$(cat a | tr '\n' ' ')" "x y "
	rm a
	same links "$(stat -c %h b)" 2
	kc-drop
	same content "$(cat d/c | tr '\n' ' ')" "x y "
	refused "File exists" ln b d/c
	refused "not permitted" py -c 'import os; os.link("d", "e")'
	rm b d/c
}

case_symbolic_links_are_kept_to_the_letter() {
	ln -s target/that/is/not there; ln -s "$(printf 'p%.0s' $(seq 1000))" long; ln -s ../x/ü uml
	same link "$(readlink there)" target/that/is/not
	same length "$(readlink long | tr -d '\n' | wc -c)" 1000
	same size "$(stat -c %s uml)" 7
	same type "$(stat -c %F there)" "symbolic link"
	refused "No such file" cat there
	mkdir real; echo in >real/f; ln -s real dir
	same through "$(cat dir/f)" in
	ln -s loop loop
	refused "Too many levels" cat loop
	touch -h -d @1234567890.123456789 there
	same mtime "$(stat -c %.9Y there)" 1234567890.123456789
}

case_fifos_sockets_and_device_nodes() {
	mkfifo fifo
	mknod char c 1 3; mknod block b 7 250
	py -c 'import socket; socket.socket(socket.AF_UNIX).bind("sock")'
	kc-drop
	same types "$(stat -c %F fifo char block sock | tr '\n' ',')" "fifo,character special file,block special file,socket,"
	same numbers "$(stat -c %t:%T char block | tr '\n' ' ')" "1:3 7:fa "
	(echo through >fifo) &
	same fifo "$(within 5 cat fifo)" through
	echo lost >char
	rm fifo char block sock
}

case_chmod_and_chown() {
	echo x >f
	for m in 0 7 70 700 4755 2755 1777 644; do chmod $m f; same mode "$(stat -c %a f)" $m; done
	chown 1234:5678 f
	same owner "$(stat -c %u:%g f)" 1234:5678
	chown 4294967290 f
	same "large uid" "$(stat -c %u f)" 4294967290
	chown 1000:1000 f; chmod 6755 f
	# A chown by root of a program takes its set-id bits away, as Linux does locally.
	chown 1001:1001 f
	same "set-id bits" "$(stat -c %a f)" 755
	setpriv --reuid 1001 --regid 1001 --clear-groups chmod 600 f
	refused "not permitted" setpriv --reuid 1002 --regid 1001 --clear-groups chmod 644 f
	refused "not permitted" setpriv --reuid 1001 --regid 1001 --clear-groups chown 1002 f
	refused "not permitted" setpriv --reuid 1001 --regid 1001 --clear-groups chgrp 9 f
	setpriv --reuid 1001 --regid 1001 --groups 9 chgrp 9 f
	same group "$(stat -c %g f)" 9
}

case_writing_takes_set_id_bits_away() {
	echo x >f; chown 1001:1001 f; chmod 6777 f
	setpriv --reuid 1002 --regid 1002 --clear-groups sh -c 'echo y >>f'
	sync
	same mode "$(stat -c %a f)" 777
}

case_times_to_the_nanosecond() {
	echo x >f
	touch -d @1111111111.123456789 f
	same mtime "$(stat -c %.9Y f)" 1111111111.123456789
	touch -a -d @1222222222.987654321 f
	same atime "$(stat -c %.9X f)" 1222222222.987654321
	same "mtime untouched" "$(stat -c %.9Y f)" 1111111111.123456789
	touch -d @-100.5 f; same "before 1970" "$(stat -c %.1Y f)" -100.5
	touch -d @4000000000 f; same "after 2038" "$(stat -c %Y f)" 4000000000
	kc-drop
	same "after a drop" "$(stat -c %Y f)" 4000000000
	local c0 c1
	c0=$(stat -c %.9Z f); chmod 600 f; c1=$(stat -c %.9Z f)
	py -c "assert $c1 > $c0, ('ctime', $c0, $c1)"
	# Explicit times need the owner; the present time needs only write permission.
	chown 1001 f; chmod 666 f
	setpriv --reuid 1002 --regid 1002 --clear-groups touch f
	refused "not permitted" setpriv --reuid 1002 --regid 1002 --clear-groups touch -d @1 f
	mkdir d; touch -d @5 d; same dir "$(stat -c %Y d)" 5
	touch d/x
	[ "$(stat -c %Y d)" -gt 1700000000 ] || die "a new name did not move the directory's mtime"
}

case_umask_and_create_modes() {
	(umask 077; touch a; mkdir b); (umask 000; touch c; mkdir d)
	same modes "$(stat -c %a a b c d | tr '\n' ' ')" "600 700 666 777 "
	py -c '
import os
# Open for writing with a mode that forbids it: only this first open may write.
fd = os.open("ro", os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o400)
os.write(fd, b"written"); os.close(fd)'
	same ro "$(stat -c %a ro):$(cat ro)" 400:written
	chmod 777 .
	setpriv --reuid 1001 --regid 1001 --clear-groups /usr/bin/python3 -c '
import os
fd = os.open("mine", os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o000)
os.write(fd, b"written by one without permission"); os.fsync(fd); os.lseek(fd, 0, 0); assert os.read(fd, 7) == b"written"'
}

case_a_setgid_directory_hands_its_group_on() {
	mkdir g; chgrp 3000 g; chmod 2775 g
	touch g/f; mkdir g/d
	same group "$(stat -c %g g/f g/d | tr '\n' ' ')" "3000 3000 "
	same "bit on the directory" "$(stat -c %a g/d)" 2755
	same "no bit on the file" "$(stat -c %a g/f)" 644
}

case_a_sticky_directory_protects_names_of_others() {
	mkdir t; chmod 1777 t
	setpriv --reuid 1001 --regid 1001 --clear-groups touch t/f t/h
	refused "not permitted" setpriv --reuid 1002 --regid 1002 --clear-groups rm -f t/f
	refused "not permitted" setpriv --reuid 1002 --regid 1002 --clear-groups mv t/f t/g
	setpriv --reuid 1002 --regid 1002 --clear-groups touch t/other
	refused "not permitted" setpriv --reuid 1002 --regid 1002 --clear-groups mv t/other t/h
	setpriv --reuid 1001 --regid 1001 --clear-groups rm t/f
}

case_permission_is_by_owner_group_and_supplementary_groups() {
	echo secret >f; chown 1001:2000 f; chmod 640 f
	same owner "$(setpriv --reuid 1001 --regid 1001 --clear-groups cat f)" secret
	same group "$(setpriv --reuid 1002 --regid 2000 --clear-groups cat f)" secret
	same "supplementary" "$(setpriv --reuid 1002 --regid 1002 --groups 7,2000,9 cat f)" secret
	refused "Permission denied" setpriv --reuid 1002 --regid 1002 --groups 7,9 cat f
	refused "Permission denied" setpriv --reuid 1002 --regid 2000 --clear-groups sh -c 'echo x >>f'
	# The owner's bits bind the owner even if others may more.
	chmod 066 f
	refused "Permission denied" setpriv --reuid 1001 --regid 2000 --clear-groups cat f
	mkdir d; echo in >d/f; chmod 700 d; chown 1001 d
	refused "Permission denied" setpriv --reuid 1002 --regid 1002 --clear-groups cat d/f
	chmod 711 d; same "search without read" "$(setpriv --reuid 1002 --regid 1002 --clear-groups cat d/f)" in
	refused "Permission denied" setpriv --reuid 1002 --regid 1002 --clear-groups ls d
	refused "Permission denied" setpriv --reuid 1002 --regid 1002 --clear-groups touch d/new
	refused "Permission denied" setpriv --reuid 1002 --regid 1002 --clear-groups rm -f d/f
}

# The client keeps a removed open file under a name .nfs* and removes that a moment after the close.
ONLY='import os, time
def only(*names):
    deadline = time.monotonic() + 10
    while sorted(os.listdir(".")) != list(names):
        assert time.monotonic() < deadline, os.listdir(".")
        time.sleep(0.05)
'

case_a_rename_over_an_open_file_leaves_the_old_one_readable() {
	py - <<-PY
	$ONLY
	for n, c in (("old", b"old content"), ("new", b"new content")):
	    with open(n, "wb") as f: f.write(c)
	f = open("old", "r+b")
	os.rename("new", "old")
	assert open("old", "rb").read() == b"new content"
	assert f.read() == b"old content", "the open file lost its bytes"
	f.seek(0); f.write(b"OLD"); f.flush(); os.fsync(f.fileno()); f.seek(0)
	assert f.read() == b"OLD content"
	f.close()
	only("old")
	PY
}

case_an_unlinked_open_file_is_usable_until_closed() {
	py - <<-PY
	$ONLY
	f = open("gone", "w+b")
	f.write(b"x" * 100000); f.flush(); os.fsync(f.fileno())
	os.unlink("gone")
	assert not os.path.exists("gone")
	f.seek(50000); f.write(b"y" * 100000); f.flush(); os.fsync(f.fileno())
	f.seek(0)
	assert f.read() == b"x" * 50000 + b"y" * 100000
	f.close()
	only()
	PY
}

case_rename_obeys_its_rules() {
	py - <<-'PY'
	import errno, os
	def refused(want, f, *a):
	    try: f(*a)
	    except OSError as e: assert e.errno in want, (a, e)
	    else: raise AssertionError("%r was allowed" % (a,))
	os.makedirs("a/b/c"); os.mkdir("empty"); os.mkdir("full"); open("full/x", "w").close(); open("f", "w").close()
	refused({errno.EINVAL}, os.rename, "a", "a/b/c/d")
	refused({errno.ENOTEMPTY, errno.EEXIST}, os.rename, "a", "full")
	refused({errno.EISDIR}, os.rename, "f", "empty")
	refused({errno.ENOTDIR}, os.rename, "empty", "f")
	refused({errno.ENOENT}, os.rename, "nothing", "g")
	refused({errno.ENOTEMPTY, errno.EEXIST}, os.rmdir, "full")
	refused({errno.EISDIR, errno.EPERM}, os.unlink, "empty")
	refused({errno.ENOTDIR}, os.rmdir, "f")
	os.rename("a", "empty"); assert os.path.isdir("empty/b/c")
	assert os.stat("empty").st_nlink == 3, os.stat("empty").st_nlink
	os.rename("empty/b", "full/b")
	assert os.stat("empty").st_nlink == 2 and os.stat("full").st_nlink == 3
	assert os.stat("full/b/..").st_ino == os.stat("full").st_ino
	os.link("f", "g"); os.rename("f", "g")          # two names of one file: nothing happens
	assert os.path.exists("f") and os.path.exists("g")
	PY
}

case_directories_count_their_links() {
	mkdir -p d/1 d/2 d/3; touch d/f
	same links "$(stat -c %h d)" 5
	rmdir d/2
	same links "$(stat -c %h d)" 4
	same dot "$(stat -c %i d/1/..)" "$(stat -c %i d)"
	mkdir -p deep/$(seq -s/ 1 60) && touch deep/$(seq -s/ 1 60)/leaf
	same deep "$(find deep -name leaf | wc -l)" 1
	rm -r deep
}

case_truncate_and_size() {
	py - <<-'PY'
	import os
	with open("f", "wb") as f: f.write(b"abcdef" * 10000)
	os.truncate("f", 7); assert open("f", "rb").read() == b"abcdefa"
	os.truncate("f", 20000); assert open("f", "rb").read() == b"abcdefa" + bytes(19993)
	with open("f", "r+b") as f:
	    f.truncate(3); f.seek(10); f.write(b"z"); f.flush()
	    assert os.fstat(f.fileno()).st_size == 11
	assert open("f", "rb").read() == b"abc" + bytes(7) + b"z"
	open("f", "wb").close(); assert os.stat("f").st_size == 0
	PY
}

case_df_tells_sizes() {
	py - <<-'PY'
	import os
	s = os.statvfs(".")
	assert s.f_blocks > 0 and 0 < s.f_bavail <= s.f_blocks, s
	assert s.f_namemax == 255, s.f_namemax
	PY
	df -i . | tail -1
}

case_flock_and_fcntl_work_between_processes() {
	touch l
	exec 9>l
	flock -x 9
	if flock -n -x l true; then die "a second flock was granted"; fi
	flock -u 9
	flock -n -x l true
	py - <<-'PY'
	import fcntl, os, struct
	a = open("l", "r+b")
	a.truncate(100)
	fcntl.lockf(a, fcntl.LOCK_EX, 10, 20)           # bytes 20..29
	pid = os.fork()
	if pid == 0:
	    b = open("l", "r+b")
	    def refused(n, at):
	        try: fcntl.lockf(b, fcntl.LOCK_EX | fcntl.LOCK_NB, n, at)
	        except OSError: return True
	        fcntl.lockf(b, fcntl.LOCK_UN, n, at); return False
	    ok = refused(1, 25) and refused(10, 15) and not refused(20, 0) and not refused(10, 30) and refused(0, 0)
	    os._exit(0 if ok else 1)
	assert os.waitpid(pid, 0)[1] == 0, "ranges"
	PY
}

case_o_excl_o_trunc_and_o_directory() {
	py - <<-'PY'
	import errno, os
	os.close(os.open("x", os.O_CREAT | os.O_EXCL | os.O_WRONLY))
	try: os.open("x", os.O_CREAT | os.O_EXCL | os.O_WRONLY); raise SystemExit("O_EXCL on an existing file")
	except FileExistsError: pass
	open("x", "w").write("text")
	os.close(os.open("x", os.O_WRONLY | os.O_TRUNC)); assert os.stat("x").st_size == 0
	try: os.open("x", os.O_RDONLY | os.O_DIRECTORY); raise SystemExit("O_DIRECTORY on a file")
	except NotADirectoryError: pass
	try: os.open(".", os.O_WRONLY); raise SystemExit("a directory opened for writing")
	except IsADirectoryError: pass
	os.symlink("x", "s")
	try: os.open("s", os.O_RDONLY | os.O_NOFOLLOW); raise SystemExit("O_NOFOLLOW on a link")
	except OSError as e: assert e.errno == errno.ELOOP
	PY
}

case_direct_io_reads_what_was_written() {
	dd if=/dev/urandom of=/run/rnd bs=1M count=4 status=none
	dd if=/run/rnd of=direct bs=512k oflag=direct status=none
	dd if=direct of=/run/back bs=256k iflag=direct status=none
	cmp /run/rnd /run/back
}
