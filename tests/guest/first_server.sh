# Two hosts and a server as a user starts it: it listens to them, so that their root is squashed. One command on the server
# makes a directory that ordinary users write to. HTTP without TLS is for the first host only.

OWN_DIRECTORY=no

meet() { kc-barrier "$CASE_NAME.$1" || die "the other client did not come to '$1'"; }
CASE_NAME=$2
as() { local id=$1; shift; setpriv --reuid "$id" --regid "$id" --clear-groups "$@"; }
create() { kc-hook create "$@"; }
# put NAME: its status when curl uploads a file over plain HTTP.
put() { curl -sS -o /run/answer -w '%{http_code}' -u "$HTTP_LOGIN" -T /run/upload "$HTTP/$1"; }

case_a_new_server_has_no_place_to_write_for_users_and_for_root_of_a_client() {
	for who in 0 4321; do
		refused "Permission denied" as $who mkdir $MNT/own
		refused "Permission denied" as $who touch $MNT/file
	done
	meet end
}

case_a_user_writes_from_one_client_to_the_new_directory_and_reads_from_the_other() {
	# Both clients know that the name does not exist.
	refused "No such file" ls scratch
	meet looked
	if first_guest; then create /scratch --owner 4321 --group 5000 --mode 2775; fi
	meet created
	ls >/run/listed
	same "the listing" "$(cat /run/listed)" scratch
	same "owner, group and mode" "$(stat -c '%u:%g %a' scratch)" "4321:5000 2775"
	if first_guest; then
		head -c 3000000 /dev/urandom >/run/data
		as 4321 sh -c 'umask 002; mkdir scratch/dir; cp /run/data scratch/dir/file; echo one >scratch/shared'
		sha256sum </run/data | as 4321 tee scratch/sum >/run/sum
		same "the group of a file below" "$(stat -c '%u:%g' scratch/dir/file)" "4321:5000"
	fi
	meet written
	if ! first_guest; then
		same "the data" "$(as 4321 sha256sum <scratch/dir/file)" "$(cat scratch/sum)"
		# Of the group, and of nothing.
		setpriv --reuid 4322 --regid 5000 --clear-groups sh -c 'echo two >>scratch/shared'
		refused "Permission denied" as 4323 touch scratch/by-another
		refused "Permission denied" touch scratch/by-root
	fi
	meet added
	if first_guest; then same "both lines" "$(as 4321 cat scratch/shared)" "$(printf 'one\ntwo')"; fi
	meet end
}

case_a_directory_cannot_be_created_twice_or_below_one_that_is_missing() {
	if first_guest; then
		create /twice --owner 4321 --group 4321
		refused "cannot create /twice: it exists already" create /twice --owner 4321 --group 4321
		refused "/missing does not exist" create /missing/below --owner 4321 --group 4321
		create /missing/below --owner 4321 --group 4321 --parents
	fi
	meet created
	ls >/run/listed
	same "the one above" "$(stat -c '%u:%g %a' missing)" "0:0 755"
	same "the one below" "$(stat -c '%u:%g %a' missing/below)" "4321:4321 755"
	meet end
}

case_plain_http_is_served_to_a_client_of_the_named_network_only() {
	if first_guest; then create /web --owner 4321 --group 4321; fi
	meet created
	head -c 200000 /dev/urandom >/run/upload
	if first_guest; then
		same "the answer to a PUT" "$(put web/by-http)" 201
		curl -sS -u "$HTTP_LOGIN" "$HTTP/web/by-http" | cmp - /run/upload
		ls web >/run/listed
		as 4321 cmp web/by-http /run/upload
		same "the owner" "$(stat -c %u web/by-http)" 4321
	else
		same "the answer to a PUT" "$(put web/refused)" 403
		grep -q http.plain_networks /run/answer || die "the answer is $(cat /run/answer)"
	fi
	meet put
	ls web >/run/listed
	same "what is there" "$(cat /run/listed)" by-http
	meet end
}
