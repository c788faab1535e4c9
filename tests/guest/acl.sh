# NFSv4 ACLs, by the programs that people have for them (nfs4-acl-tools; the kernel's system.nfs4_acl).

as() { local uid=$1; shift; setpriv --reuid "$uid" --regid "$uid" --clear-groups "$@"; }
back() { remount; cd "$MNT/acl/$1"; }      # nothing is cached afterwards
acl_of() { nfs4_getfacl "$1" | sed '/^#/d;/^$/d' | tr '\n' ' '; }

case_a_file_without_an_acl_tells_its_mode() {
	: >f
	chmod 640 f
	same acl "$(acl_of f)" "A::OWNER@:rwatTcCy A::GROUP@:rtcy A::EVERYONE@:tcy "
}

case_setfacl_and_getfacl_agree_over_a_remount() {
	: >f
	mkdir d
	nfs4_setfacl -s "D::4321:r,A::OWNER@:rwaxtTcCy,A:g:100:rtcy,A::EVERYONE@:rtcy" f
	nfs4_setfacl -a "A:fd:4321:rwaxtcy" d
	back "${FUNCNAME[0]#case_}"
	same acl "$(acl_of f)" "D::4321:r A::OWNER@:rwaxtTcCy A:g:100:rtcy A::EVERYONE@:rtcy "
	same mode "$(stat -c %a f)" 744
	case "$(acl_of d)" in "A:fd:4321:rwaxtcy "*) ;; *) die "the directory has $(acl_of d)" ;; esac
	nfs4_setfacl -x "D::4321:r" f
	same "one entry less" "$(acl_of f)" "A::OWNER@:rwaxtTcCy A:g:100:rtcy A::EVERYONE@:rtcy "
}

case_an_ordinary_user_may_what_the_acl_says() {
	echo data >f
	chmod 644 f
	same before "$(as 4321 cat f)" data
	nfs4_setfacl -a "D::4321:r" f
	refused "Permission denied" as 4321 cat f
	same another "$(as 4322 cat f)" data
	refused "Operation not permitted" as 4321 nfs4_setfacl -x "D::4321:r" f
	nfs4_setfacl -s "A::OWNER@:rwatTcCy,A::4321:rwatcy" f
	as 4321 sh -c 'echo more >>f'
	same both "$(as 4321 cat f)" "data
more"
	refused "Permission denied" as 4322 cat f
	nfs4_setfacl -s "A::OWNER@:rwatTcCy,A::4321:rtTcCy" f
	as 4321 chmod 600 f
	same mode "$(stat -c %a f)" 600
}

case_chmod_masks_who_is_named() {
	echo data >f
	nfs4_setfacl -s "A::OWNER@:rwatTcCy,A::4321:rwatcy,A::GROUP@:rwatcy,A::EVERYONE@:tcy" f
	as 4321 sh -c 'echo more >>f'
	chmod 640 f
	same mode "$(stat -c %a f)" 640
	as 4321 cat f >/dev/null
	refused "Permission denied" as 4321 sh -c 'echo more >>f'
}

case_new_files_and_directories_inherit_whatever_the_umask() {
	mkdir d
	nfs4_setfacl -a "A:fd:4321:rwaxtcy" d
	(umask 077 && echo data >d/f && mkdir d/below && echo data >d/below/f)
	as 4321 sh -c 'echo more >>d/f && echo more >>d/below/f && : >d/below/new'
	refused "Permission denied" as 4322 cat d/f
	same below "$(as 4321 ls d/below | tr '\n' ' ')" "f new "
}

case_names_are_removed_by_delete_child_or_delete() {
	mkdir d
	: >d/a
	: >d/b
	: >d/c
	nfs4_setfacl -s "A::OWNER@:rwaDxtTcCy,A::EVERYONE@:rxtcy" d
	refused "Permission denied" as 4321 rm -f d/a
	nfs4_setfacl -a "A::4321:d" d/a
	as 4321 rm -f d/a
	nfs4_setfacl -a "A::4321:D" d
	as 4321 rm -f d/b
	nfs4_setfacl -s "D::4321:D,A::EVERYONE@:rwaxtcy" d
	refused "Permission denied" as 4321 rm -f d/c
	as 4322 rm -f d/c
}

case_they_survive_a_kill_of_the_server() {
	echo data >f
	nfs4_setfacl -a "D::4321:r" f
	local acl
	acl=$(acl_of f)
	cd /
	kc-hook server-kill
	kc-hook server-start
	back "${FUNCNAME[0]#case_}"
	same acl "$(acl_of f)" "$acl"
	refused "Permission denied" as 4321 cat f
}
