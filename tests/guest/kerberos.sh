# NFS with Kerberos: the guest has the KDC of a realm of its own, rpc.gssd, and users with tickets and without.
#
# The first case makes a directory by AUTH_SYS; then the server is told to take Kerberos only.
OWN_DIRECTORY=no
DIR=/mnt/krb5

as() { # as USER COMMAND...
	local user=$1
	shift
	setpriv --reuid "$user" --regid "$(id -g "$user")" --clear-groups -- "$@"
}
# ticket USER [PRINCIPAL [KINIT-OPTION...]]: USER's tickets are PRINCIPAL's from now on.
ticket() {
	local user=$1 principal=${2:-$1}
	shift; shift || true
	as "$user" kdestroy -q -c "/tmp/krb5cc_$(id -u "$user")" 2>/dev/null || true
	echo secret | as "$user" kinit -c "/tmp/krb5cc_$(id -u "$user")" "$@" "$principal" >/dev/null
}
no_ticket() { rm -f "/tmp/krb5cc_$(id -u "$1")"; }

# mounted FLAVOR: the export with this flavor at $DIR, and the kernel knows nothing of earlier contexts.
mounted() {
	cd /
	if mountpoint -q $DIR; then umount $DIR; fi
	kc-mount "head.forebay.test:$KC_PORT:/" $DIR "vers=4.2,sec=$1"
	grep -q " $DIR nfs4 .*sec=$1[, ]" /proc/mounts || die "not mounted with sec=$1: $(grep $DIR /proc/mounts)"
}

case_a_user_with_a_ticket_reads_and_writes_with_each_flavor() {
	mkdir -p home public
	chown backup:backup home
	chmod 700 home
	chmod 1777 public
	cd /
	umount $MNT
	kc-hook only-kerberos
	kc-hook server-restart
	cp "$KRB5/krb5.conf" /etc/krb5.conf
	cp "$KRB5/client.keytab" /etc/krb5.keytab
	printf '[General]\nDomain = forebay.test\n' >/etc/idmapd.conf
	: >/etc/resolv.conf
	printf '127.0.0.1 localhost\n%s head.forebay.test\n%s client.forebay.test\n' "$KC_SERVER" "$KC_IP" >/etc/hosts
	hostname client.forebay.test
	KRB5_KDC_PROFILE=$KRB5/kdc.conf setsid krb5kdc -r FOREBAY.TEST
	setsid rpc.gssd
	within 20 sh -c 'until echo secret | kinit -c /tmp/probe backup >/dev/null 2>&1; do sleep 0.2; done'
	ticket backup
	local sec
	for sec in krb5 krb5i krb5p; do
		mounted $sec
		as backup sh -c "head -c 5000000 /dev/urandom >/tmp/$sec && cp /tmp/$sec $DIR/home/$sec && sync $DIR/home/$sec"
		same owner "$(as backup stat -c %U "$DIR/home/$sec")" backup
		mounted $sec
		as backup cmp /tmp/$sec $DIR/home/$sec
	done
}

case_the_pool_is_spoken_to_with_kerberos_too() {
	ticket backup
	mounted krb5p
	local before
	before=$(kc-hook pool-bytes "$POOL_PORT")
	as backup cmp /tmp/krb5 $DIR/home/krb5
	as backup dd if=/tmp/krb5i of=$DIR/home/again bs=1M conv=fsync 2>/dev/null
	local moved=$(($(kc-hook pool-bytes "$POOL_PORT") - before))
	echo "$moved bytes to and from the pool"
	[ "$moved" -gt 10000000 ] || die "the pool was not used"
}

case_without_a_ticket_nothing_is_opened() {
	no_ticket games
	mounted krb5
	refused "Permission denied" as games ls $DIR/public
	ticket games
	as games timeout 30 ls $DIR/public
}

case_a_ticket_opens_what_its_principal_may_and_no_more() {
	ticket games
	ticket backup
	mounted krb5i
	refused "Permission denied" as games cat $DIR/home/krb5
	as games sh -c "echo mine >$DIR/public/of_games"
	same owner "$(as backup stat -c %u $DIR/public/of_games)" "$(id -u games)"
	refused "Operation not permitted" as backup rm $DIR/public/of_games
}

case_a_principal_that_is_no_user_here_is_nobody() {
	ticket games stranger
	mounted krb5
	refused "Permission denied" as games cat $DIR/home/krb5
	as games sh -c "echo strange >$DIR/public/of_a_stranger"
	same owner "$(as games stat -c %u $DIR/public/of_a_stranger)" 65534
}

case_owners_are_told_and_given_by_name() {
	ticket backup
	mounted krb5i
	same "owner and group" "$(as backup ls -l $DIR/home/krb5 | awk '{ print $3 ":" $4 }')" backup:backup
	# With Kerberos the kernel sends names; without a domain of the server's this was an invalid argument.
	as backup chown backup:backup $DIR/home/krb5
	refused "Operation not permitted" as backup chown games $DIR/home/krb5
	same owner "$(as backup stat -c %U $DIR/home/krb5)" backup
}

case_users_and_groups_in_acls_are_given_and_told_by_name() {
	ticket backup
	ticket games
	mounted krb5i
	local f=$DIR/public/shared
	as backup sh -c "umask 077; echo data >$f"
	refused "Permission denied" as games cat "$f"
	as backup nfs4_setfacl -a "A::games@forebay.test:rwa" "$f"
	same "told again" "$(as backup nfs4_getfacl "$f" | grep games)" "A::games@forebay.test:rwa"
	same "read by who is named" "$(as games cat "$f")" data
	as games sh -c "echo more >>$f"
	same "as told to who is named" "$(as games nfs4_getfacl "$f" | grep games)" "A::games@forebay.test:rwa"
	refused "Operation not permitted" as games nfs4_setfacl -a "A::games@forebay.test:C" "$f"
	refused "Invalid argument" as backup nfs4_setfacl -a "A::stranger@forebay.test:r" "$f"
	as backup nfs4_setfacl -x "A::games@forebay.test:rwa" "$f"
	refused "Permission denied" as games cat "$f"
	as backup nfs4_setfacl -a "A:g:games@forebay.test:r" "$f"
	same "read by who is of the group" "$(as games cat "$f")" "data
more"
	refused "Permission denied" as games sh -c "echo again >>$f"
}

# key_of USER: the number of the server's key that USER's ticket for it is sealed with.
key_of() { as "$1" kvno nfs/head.forebay.test | sed 's/.*kvno = //'; }
# keytab KADMIN-COMMAND...: the server has the keytab that this makes of the one it has, and says in its log that it took it.
keytab() {
	local file=/run/server.keytab taken
	taken=$(kc-hook keytabs-taken)
	[ -e "$file" ] || cp "$KRB5/server.keytab" "$file"
	KRB5_KDC_PROFILE=$KRB5/kdc.conf kadmin.local -r FOREBAY.TEST "$1" -k "$file" nfs/head.forebay.test ${2:-}
	kc-hook new-keytab "$(base64 -w0 "$file")"
	for _ in $(seq 100); do
		if [ "$(kc-hook keytabs-taken)" -gt "$taken" ]; then return; fi
		sleep 0.1
	done
	die "the server did not take the new keytab"
}

case_a_new_key_of_the_server_is_taken_while_it_runs() {
	ticket backup
	ticket games
	mounted krb5i
	as backup sh -c "echo before >$DIR/home/keys"
	local old new
	old=$(key_of games)
	keytab ktadd
	as backup sh -c "echo after >>$DIR/home/keys"
	as games ls $DIR/public >/dev/null
	same "games's ticket is of before" "$(key_of games)" "$old"
	ticket backup
	new=$(key_of backup)
	[ "$new" -gt "$old" ] || die "the new ticket is under key $new, as before"
	rm -f /tmp/krb5ccmachine_*
	mounted krb5p
	same "by the new key" "$(as backup cat $DIR/home/keys)" "before
after"
	as games ls $DIR/public >/dev/null
	# Without the old key who has a ticket of before is refused, and nobody else.
	keytab ktremove old
	mounted krb5i
	same "by the new key only" "$(as backup cat $DIR/home/keys)" "before
after"
	refused "Permission denied" as games ls $DIR/public
	ticket games
	mounted krb5i
	as games ls $DIR/public >/dev/null
}

case_an_expired_ticket_is_refused() {
	ticket games games -l 10s
	mounted krb5
	as games ls $DIR/public >/dev/null
	within 30 sh -c 'while setpriv --reuid games --regid games --clear-groups klist -s -c /tmp/krb5cc_5; do sleep 1; done'
	# For klist it has expired a second earlier than for who shows it.
	sleep 1
	mounted krb5
	if as games ls $DIR/public; then die "the expired ticket was good"; fi
}

case_auth_sys_is_refused_where_it_is_not_listed() {
	cd /
	if kc-mount "head.forebay.test:$KC_PORT:/" /mnt/sys vers=4.2,sec=sys; then die "mounted with AUTH_SYS"; fi
	umount $DIR
	# Without sec= the client asks the server, and takes the first of the list.
	mount -n -t nfs4 -o "vers=4.2,port=$KC_PORT" head.forebay.test:/ $DIR
	grep -q " $DIR nfs4 .*sec=krb5[, ]" /proc/mounts || die "$(grep $DIR /proc/mounts)"
	umount $DIR
	kc-hook also-sys
	kc-hook server-restart
	mount_it
}

case_a_user_with_a_ticket_crosses_from_auth_sys_into_an_export_with_privacy() {
	mkdir -m 1777 private
	cd /
	umount $MNT
	kc-hook export-private
	kc-hook server-restart
	no_ticket games
	ticket backup
	# Without sec= the client takes what the server asks for, here and below.
	mount -n -t nfs4 -o "vers=4.2,port=$KC_PORT" head.forebay.test:/ $DIR
	grep -q " $DIR nfs4 .*sec=sys[, ]" /proc/mounts || die "$(grep $DIR /proc/mounts)"
	refused "Operation not permitted" as games ls $DIR/private
	as backup cp /tmp/krb5 $DIR/private/of_backup
	grep -q " $DIR/private nfs4 .*sec=krb5p[, ]" /proc/mounts || die "no mount of its own: $(grep $DIR /proc/mounts)"
	same owner "$(as backup stat -c %U $DIR/private/of_backup)" backup
	refused "Operation not permitted" as games ls $DIR/private
	same "what is around it" "$(as games cat $DIR/public/of_games)" mine
	ticket games
	as games cmp /tmp/krb5 $DIR/private/of_backup
	refused "Permission denied" as games sh -c "echo more >>$DIR/private/of_backup"
	umount $DIR/private $DIR
	# Who insists on AUTH_SYS gets no further.
	mount_it
	same "by AUTH_SYS" "$(as games cat $MNT/public/of_games)" mine
	refused "Operation not permitted" as backup ls $MNT/private
}
