# What each guest runs, with its working directory at the mount: it waits for what the driver asks, by files in $TALK, a
# directory of the host. Sourced by the guest's shell.
#
# `ask.N` holds HOW CREATORS ITEMS CLIENTS. Guest 0 runs one mdtest of so many processes, spread over so many clients, and
# leaves in `N/` what it said (`said`, `ranks.csv`), what `phase` wrote down, and last its status (`status`). The other guest
# starts its share of the processes when `launch` on guest 0 asks for it. `end` ends all.
# Given: $TALK, $HERE (this directory), $MDTEST (what `build` made).

# Hydra names the hosts; there is no other resolver here.
for i in $(seq 0 $((KC_CLIENTS - 1))); do echo "10.77.0.$((11 + i)) kc$i" >>/etc/hosts; done
# A packet over which a card sleeps is sent again after 2 ms, not 200: by the servers (`network`) and between the guests.
ip route change 10.77.0.0/24 dev vec0 proto kernel scope link src "$KC_IP" rto_min 2ms
export ASK=0 HERE TALK

# Without a process, which is dear in a guest and would take its time from what is measured: a read that nobody answers.
mkfifo /tmp/never
exec 9<>/tmp/never
wait_for() {
	until [ -e "$TALK/$1" ]; do
		[ ! -e "$TALK/end" ] || exit 0
		read -r -t 0.1 -u 9 || true
	done
}

measure() {
	local how=$1 creators=$2 items=$3 clients=$4 own= hosts=kc0
	[ "$how" = shared ] || own=-u
	[ "$clients" = 1 ] || hosts=kc0,kc1
	mkdir "$ASK"
	"$MDTEST/mpi/bin/mpiexec.hydra" -launcher rsh -launcher-exec "$HERE/launch" -iface vec0 -hosts $hosts -n "$creators" \
		"$MDTEST/mdtest" -F -C -T -r $own -n "$items" -d "$PWD/$ASK" --run-cmd-before-phase="$HERE/phase" \
		--saveRankPerformanceDetails="$TALK/$ASK/ranks.csv"
}

if [ "$KC_INDEX" = 0 ]; then
	kc-hook network
	# The first open waits for the server's grace.
	echo warm >warm
	while wait_for "ask.$ASK"; do
		mkdir "$TALK/$ASK"
		# shellcheck disable=SC2046 # words are meant
		measure $(cat "$TALK/ask.$ASK") >"$TALK/$ASK/said" 2>&1 </dev/null
		echo $? >"$TALK/$ASK/status.tmp"
		mv "$TALK/$ASK/status.tmp" "$TALK/$ASK/status"
		ASK=$((ASK + 1))
	done
else
	n=0
	while wait_for "launch.$n"; do
		bash "$TALK/launch.$n" >"$TALK/launched.$n.tmp" 2>&1 </dev/null
		mv "$TALK/launched.$n.tmp" "$TALK/launched.$n"
		n=$((n + 1))
	done
fi
