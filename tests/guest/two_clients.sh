# Two kernels. Each case runs on both; kc-barrier brings them to the same line. Paths are the same on both sides.

meet() { kc-barrier "$CASE_NAME.$1" || die "the other client did not come to '$1'"; }
CASE_NAME=$2

case_a_file_that_one_client_closes_the_other_opens() {
	local i me other
	for i in $(seq 10); do
		# Even rounds client 0 writes, odd rounds client 1: close-to-open both ways, over the same file.
		if [ $((i % 2)) = "$KC_INDEX" ]; then
			py -c "open('f', 'wb').write(b'round $i ' * $((i * 1000)))"
			echo "$i" >"small-$i"
		fi
		meet "written$i"
		same "bytes in round $i" "$(sha256sum <f)" "$(py -c "import sys; sys.stdout.write('round $i ' * $((i * 1000)))" | sha256sum)"
		same "size in round $i" "$(stat -c %s f)" "$(py -c "print(len('round $i ' * $((i * 1000))))")"
		same "small file" "$(cat "small-$i")" "$i"
		meet "read$i"
	done
}

case_appends_of_both_in_turn_are_all_there() {
	local i
	for i in $(seq 20); do
		if [ $((i % 2)) = "$KC_INDEX" ]; then echo "line $i" >>log; fi
		meet "$i"
	done
	same lines "$(cat log)" "$(seq -f 'line %.0f' 20)"
}

case_new_names_of_each_kind_are_seen_by_the_other_client() {
	local maker name
	if first_guest; then mkdir d; fi
	meet directory
	for maker in 0 1; do
		# That the name is not there is in the other client's cache, too.
		for name in file dir link symlink fifo device; do refused "No such file" stat "d/$name$maker"; done
		meet "missing$maker"
		if [ "$maker" = "$KC_INDEX" ]; then
			: >"d/file$maker"
			mkdir "d/dir$maker"
			ln "d/file$maker" "d/link$maker"
			ln -s "file$maker" "d/symlink$maker"
			mkfifo "d/fifo$maker"
			mknod "d/device$maker" c 1 3
		fi
		meet "made$maker"
		ls d >/dev/null     # opening the directory is what makes a client ask for its names anew
		same "names of client $maker" "$(cd d && stat -c '%n %F' device* dir* fifo* file* link* symlink* | grep "$maker " | tr '\n' ',')" \
			"device$maker character special file,dir$maker directory,fifo$maker fifo,file$maker regular empty file,link$maker regular empty file,symlink$maker symbolic link,"
		meet "seen$maker"
	done
}

case_names_made_renamed_and_removed_are_seen() {
	if first_guest; then mkdir d; echo x >d/a; ln -s a d/l; fi
	meet made
	same list "$(ls d | tr '\n' ' ')" "a l "
	meet seen
	if ! first_guest; then mv d/a d/b; fi
	meet renamed
	ls d        # opening the directory is what makes a client ask for its names anew
	same content "$(cat d/b)" x
	refused "No such file" cat d/a
	meet looked
	if first_guest; then rm -r d; fi
	meet removed
	ls
	refused "No such file" ls d
}

case_o_excl_has_one_winner_in_every_round() {
	py - <<-'PY' || die "see above"
	import os, subprocess
	me, won = os.environ["KC_INDEX"], []
	for i in range(60):
	    if i % 5 == 0:
	        subprocess.run(["kc-barrier", "excl%d" % i], check=True)
	    try:
	        fd = os.open("x%d" % i, os.O_CREAT | os.O_EXCL | os.O_WRONLY)
	        os.write(fd, me.encode()); os.close(fd); won.append(i)
	    except FileExistsError:
	        pass
	open("won." + me, "w").write("".join("%d\n" % i for i in won))
	PY
	for d in $(seq 60); do mkdir "dir$d" 2>/dev/null && echo "$d" >>"dirs.$KC_INDEX"; done
	meet done
	touch "dirs.$KC_INDEX"
	meet touched
	same "one winner per file" "$(cat won.0 won.1 | sort -n | tr '\n' ' ')" "$(seq 0 59 | tr '\n' ' ')"
	same "one winner per directory" "$(cat dirs.0 dirs.1 | sort -n | tr '\n' ' ')" "$(seq 60 | tr '\n' ' ')"
	for i in $(cat won.$KC_INDEX); do same "writer of x$i" "$(cat "x$i")" "$KC_INDEX"; done
	echo "client $KC_INDEX won $(wc -l <won.$KC_INDEX) files, $(wc -l <dirs.$KC_INDEX) directories"
}

case_fcntl_locks_exclude_and_a_waiter_gets_the_lock() { py "$GUEST/locks_of_two.py" exclude; }

case_a_waiter_is_told_of_a_lock_that_was_held_for_long() { py "$GUEST/locks_of_two.py" told; }

case_a_counter_under_a_lock_loses_no_step() { py "$GUEST/locks_of_two.py" counter; }

case_a_listing_while_the_other_client_removes() {
	if first_guest; then
		mkdir big
		py -c '
import os
for i in range(900): os.close(os.open("big/f%05d" % i, os.O_CREAT | os.O_EXCL))'
	fi
	meet made
	if first_guest; then
		py -c '
import os
for i in range(900):
    if i % 30: os.unlink("big/f%05d" % i)'
		touch done
	else
		py - <<-'PY'
		import os, time
		stay = {"f%05d" % i for i in range(0, 900, 30)}
		n = 0
		while "done" not in os.listdir("."):     # opening the directory asks anew
		    names = os.listdir("big")
		    assert len(names) == len(set(names)), "names listed twice"
		    assert stay <= set(names), "names that stay are missing"
		    n += 1
		    time.sleep(0.02)
		print(n, "listings")
		PY
	fi
	meet end
	same left "$(ls big | wc -l)" 30
}

case_an_unlinked_file_stays_open_on_the_other_client_or_is_stale() {
	if ! first_guest; then exec 5<>f; echo content >&5; sync f; fi
	meet opened
	if first_guest; then rm f; fi
	meet removed
	if ! first_guest; then
		# NFS promises no more: either the bytes are still there or the client is told that the file is gone.
		py -c '
import errno, os
try:
    got = os.pread(5, 100, 0)
    assert got == b"content\n", got
except OSError as e:
    assert e.errno == errno.ESTALE, e' 5<&5
	fi
	meet read
	ls
	refused "No such file" cat f
}

case_locks_and_opens_outlive_a_server_restart() {
	# Client 0 holds an open and a lock over the restart; client 1 tries to steal it all the while.
	py "$GUEST/locks_of_two.py" restart
	# Only the holder's word counts: 6.1 says "lost 1 locks" also of a lock that was asked for and never granted.
	if first_guest && dmesg | grep -i 'lock reclaim failed\|lost.*lock'; then die "the client lost a lock"; fi
}

case_a_silent_clients_locks_are_free_after_its_lease() { py "$GUEST/locks_of_two.py" silent; }

case_a_killed_clients_locks_are_free_after_its_lease() { py "$GUEST/locks_of_two.py" killed; }
