# The slots of a client's session: more for who has many calls at once, fewer where a crowd of others has taken the memory.
# The second case works on the files of the first.

OWN_DIRECTORY=no
sessions() { py "$GUEST/sessions.py" "$@"; }
# slots [COUNT]: what the server says of all sessions, without so many that are others'.
slots() {
	curl -sSf --cacert "$HTTP_CA" -u "$HTTP_LOGIN" "$HTTP/metrics" |
		awk -v others="${1:-0}" '$1 == "forebay_nfs_slots" { print $2 - others }'
}
has_said() { grep -qs "$1" /run/calls; }
# soon SECONDS COMMAND...: until it succeeds, a function of this file too.
soon() {
	local until=$((SECONDS + $1))
	shift
	until "$@"; do
		[ $SECONDS -lt $until ] || return 1
		sleep 0.2
	done
}
# A call, and what the session has after it.
keeps_to() { ls -l many >/dev/null; stat many/* >/dev/null; [ "$(slots "$2")" -le "$1" ]; }
modes() { stat -c %a many/* | sort | uniq -c | awk '{ print $1 ":" $2 }'; }

case_a_client_with_many_calls_at_once_gets_more_slots() {
	mkdir many
	touch many/{0..149}
	chmod 600 many/*
	same "at first" "$(slots)" 64
	sessions at_once many 150
	same modes "$(modes)" 150:640
	echo "$(slots) slots"
	[ "$(slots)" -gt 64 ] || die "no more than at first"
}

case_where_memory_is_short_an_idle_client_is_called_and_gives_slots_back() {
	sessions calls /run/calls &
	soon 10 has_said watching
	touch /run/crowd
	sessions crowd 112 16 /run/crowd >/run/count &
	local crowd=$! others
	soon 40 test -s /run/count || die "the crowd did not come"
	others=$(cat /run/count)
	echo "$(slots "$others") slots, and $others of the crowd"
	# Nobody works here now.
	soon 40 has_said "asked to keep to slot 3" || die "not asked: $(cat /run/calls)"
	soon 5 has_said "answered 0 0 for slot 3" || die "not answered: $(cat /run/calls)"
	soon 20 keeps_to 4 "$others" || die "$(slots "$others") slots are left"
	# Four do what there is to do, however many wait.
	sessions at_once many 150
	same modes "$(modes)" 150:600
	same "while memory is short" "$(slots "$others")" 4
	rm /run/crowd
	wait $crowd || die "the crowd ended with $?"
	sessions at_once many 150
	same modes "$(modes)" 150:640
	echo "$(slots) slots at last"
	[ "$(slots)" -gt 4 ] || die "no more when memory is not short any longer"
	kill %1
}
