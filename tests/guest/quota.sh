# A directory with a quota, and a user with one, as a kernel client meets them.

as_user() { # as_user PYTHON: run as an ordinary user
	printf '%s\n' "import errno, os" "os.setgid(4321); os.setuid(4321)" "$1" | sed 's/^\t//' | py -
}

case_df_of_a_directory_with_a_quota_shows_the_quota() {
	mkdir tree
	kc-hook quota --tree "/quota/${FUNCNAME[0]#case_}/tree" --bytes-hard 32M --files-hard 50
	df -m tree | tail -1
	same MiB "$(df -m --output=size tree | tail -1 | tr -d ' ')" 32
	same inodes "$(df --output=itotal tree | tail -1 | tr -d ' ')" 50
	[ "$(stat -f -c %b .)" -gt "$(stat -f -c %b tree)" ] || die "the directory above is as small"
}

case_a_file_ends_where_the_quota_of_its_tree_does_with_edquot() {
	mkdir tree
	chmod 777 tree
	kc-hook quota --tree "/quota/${FUNCNAME[0]#case_}/tree" --bytes-hard 32M
	same said "$(as_user '
	fd = os.open("tree/f", os.O_CREAT | os.O_WRONLY)
	try:
	    for _ in range(64): os.write(fd, bytes(1 << 20))
	    os.fsync(fd)
	    os.close(fd)
	    print("no error")
	except OSError as e:
	    print(errno.errorcode[e.errno])
	')" EDQUOT
	kc-drop
	local size
	size=$(stat -c %s tree/f)
	echo "$size bytes of 33554432"
	[ "$size" -le $((33554432 + 4096)) ] || die "the file is beyond the quota"
	[ "$size" -ge $((31 << 20)) ] || die "the file ends before the quota"
	rm tree/f
	within 30 sh -c 'until setpriv --reuid 4321 --regid 4321 --clear-groups dd if=/dev/zero of=tree/g bs=1M count=20 conv=fsync 2>/dev/null; do sleep 0.5; done'
}

case_a_user_at_the_limit_of_files_gets_edquot_and_others_do_not() {
	mkdir -m 777 d
	kc-hook quota --user 4321 --files-hard 100
	same said "$(as_user '
	try:
	    for n in range(200): os.close(os.open("d/f%d" % n, os.O_CREAT | os.O_WRONLY))
	    print("no error")
	except OSError as e:
	    print(errno.errorcode[e.errno])
	')" EDQUOT
	touch d/by-root
	kc-hook quota --user 4321 --files-hard 0
}
