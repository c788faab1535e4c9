# The server runs as uid 4321 without privileges; root on clients is squashed because it does not listen on loopback.

OWN_DIRECTORY=no

as_owner() { setpriv --reuid 4321 --regid 4321 --clear-groups "$@"; }

case_its_owner_can_work_on_the_mount() {
	same owner "$(stat -c %u .)" 4321
	as_owner mkdir own
	as_owner sh -c 'dd if=/dev/urandom of=own/f bs=1M count=4 conv=fsync status=none; ln -s f own/l; chmod 640 own/f; mv own/f own/g'
	as_owner tar xf "$TREE" -C own --wildcards 'tree/[a-b]*'
	kc-drop
	mkdir /run/tree && tar xf "$TREE" -C /run/tree --wildcards 'tree/[a-b]*'
	diff -r /run/tree/tree own/tree
	as_owner rm -r own
}

case_root_of_a_client_is_nobody() {
	as_owner sh -c 'umask 077; echo private >private; mkdir -m 755 shut; mkdir -m 777 open'
	touch open/by-root
	[ "$(stat -c %u open/by-root)" != 0 ] || die "root is root"
	refused "Permission denied" touch shut/by-root
	refused "not permitted" chown 0 open/by-root
}
