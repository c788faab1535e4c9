# Two hosts. The first has everything all the time; what the second has the configuration says anew in each case.

OWN_DIRECTORY=no
TWO=/mnt/two

meet() { kc-barrier "$CASE_NAME.$1" || die "the other client did not come to '$1'"; }
CASE_NAME=$2
# Off the mount: the server is away for a moment, and what the second has mounted may be gone.
configure() {
	cd /
	if ! first_guest && mountpoint -q $MNT; then umount $MNT; fi
	meet away
	if first_guest; then kc-hook "$1"; kc-hook server-restart; fi
	meet restarted
}

case_a_host_sees_what_is_exported_to_it_and_the_way_there() {
	if first_guest; then
		mkdir -p a/b hidden
		echo data >a/b/file
		echo secret >a/secret
		chmod 700 a
	fi
	meet made
	configure export
	if ! first_guest; then
		within 60 kc-mount "$SPEC" $TWO "$OPTS"
		same "the root" "$(ls $TWO)" a
		same "the way" "$(ls $TWO/a)" b
		same "the export" "$(cat $TWO/a/b/file)" data
		refused "No such file" cat $TWO/a/secret
		refused "No such file" ls $TWO/hidden
		refused "Read-only" touch $TWO/new
		refused "Read-only" touch $TWO/a/b/new
		refused "Read-only" rm $TWO/a/b/file
		refused "Read-only" mkdir $TWO/a/b/new
		umount $TWO
		within 60 kc-mount "${SPEC}a/b" $TWO "$OPTS"
		same "mounted itself" "$(cat $TWO/file)" data
		umount $TWO
	else
		same "who has everything" "$(cat $MNT/a/secret)" secret
		echo more >$MNT/a/b/more
	fi
	meet end
}

case_a_host_with_nothing_is_denied_the_mount() {
	configure take_away
	if ! first_guest; then
		refused "access denied by server" timeout 60 kc-mount "$SPEC" $TWO "$OPTS"
	else
		same "who has everything" "$(cat $MNT/a/secret)" secret
	fi
	meet end
}
