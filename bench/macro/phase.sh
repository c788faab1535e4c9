# What the jobs of the guest share; sourced by them.
#
# phase NAME COMMAND... writes `NAME SECONDS MARK-BEFORE MARK-AFTER [FILES]` to $KC_OUT/phases, where a mark is what the host
# said about the server at that moment (CPU ticks and syncs so far), and leaves the client's RPC counters as stats
# before_NAME, after_NAME, and the server's own in the host's files of these names. Marks and counters lie outside of the time
# that is taken. FILES: how many the phase made, where made_NAME says so.

phase() {
	local name=$1 mark seconds t0
	shift
	kc-stats "before_$name"
	[ -z "$METRICS" ] || kc-hook metrics "before_$name"
	mark=$(kc-hook mark)
	t0=$EPOCHREALTIME
	seconds=$("$@")     # a phase that times itself prints its seconds
	[ -n "$seconds" ] || seconds=$(awk -v a="$t0" -v b="$EPOCHREALTIME" 'BEGIN { print b - a }')
	mark="$mark $(kc-hook mark)"
	kc-stats "after_$name"
	[ -z "$METRICS" ] || kc-hook metrics "after_$name"
	echo "$name $seconds $mark $(! declare -F "made_$name" >/dev/null || "made_$name")" >>"$KC_OUT/phases"
}
