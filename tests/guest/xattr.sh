# Extended attributes of users, by the programs and system calls that people have.

case_setfattr_and_getfattr_agree_on_files_and_directories() {
	local f
	mkdir d
	: >f
	for f in f d; do
		setfattr -n user.colour -v red "$f"
		setfattr -n user.bytes -v 0x00ff0a00 "$f"
		setfattr -n user.empty "$f"
		remount
		cd "$MNT/xattr/${FUNCNAME[0]#case_}"
		same "names of $f" "$(getfattr "$f" | sed '1d;/^$/d' | sort | tr '\n' ' ')" "user.bytes user.colour user.empty "
		same "colour of $f" "$(getfattr --only-values -n user.colour "$f")" red
		same "bytes of $f" "$(getfattr --only-values -n user.bytes "$f" | od -An -tx1)" " 00 ff 0a 00"
		same "empty of $f" "$(getfattr --only-values -n user.empty "$f" | wc -c)" 0
		setfattr -x user.colour "$f"
		refused "No such attribute" setfattr -x user.colour "$f"
		refused "No such attribute" getfattr --only-values -n user.colour "$f"
		refused "Operation not supported" setfattr -n trusted.colour -v red "$f"
	done
}

case_system_calls_create_replace_list_and_remove() { py "$GUEST/xattr.py" calls; }

case_a_value_of_60_kib_and_a_hundred_names_come_back_to_the_byte() {
	py "$GUEST/xattr.py" write large
	kc-drop
	remount
	cd "$MNT/xattr/${FUNCNAME[0]#case_}"
	py "$GUEST/xattr.py" verify large
}

case_an_ordinary_user_may_what_the_mode_says() {
	: >f
	mkdir -m 1777 shared
	chmod 604 f
	setfattr -n user.a -v 1 f
	local as="setpriv --reuid 4321 --regid 4321 --clear-groups"
	same read "$($as getfattr --only-values -n user.a f)" 1
	refused "Permission denied" $as setfattr -n user.a -v 2 f
	refused "Operation not permitted" $as setfattr -n user.a -v 2 shared
	chmod 600 f
	refused "Permission denied" $as getfattr --only-values -n user.a f
	chmod 606 f
	$as setfattr -n user.a -v 2 f
	same written "$(getfattr --only-values -n user.a f)" 2
}

case_cp_a_takes_extended_attributes_along() {
	: >from
	setfattr -n user.a -v 1 from
	cp -a from to
	mv to moved
	ln moved linked
	same copied "$(getfattr --only-values -n user.a linked)" 1
}

case_they_survive_a_restart_and_a_kill_of_the_server() {
	py "$GUEST/xattr.py" write kept
	cd /
	kc-hook server-stop
	kc-hook server-start
	remount
	cd "$MNT/xattr/${FUNCNAME[0]#case_}"
	py "$GUEST/xattr.py" verify kept
	setfattr -n user.last -v 1 kept
	cd /
	kc-hook server-kill
	kc-hook server-start
	remount
	cd "$MNT/xattr/${FUNCNAME[0]#case_}"
	same last "$(getfattr --only-values -n user.last kept)" 1
	setfattr -x user.last kept
	py "$GUEST/xattr.py" verify kept
}
