# The job that every side runs, in the guest, with its working directory at the mount. Sourced by the guest's shell.
#
# Each phase writes `NAME SECONDS MARK-BEFORE MARK-AFTER` to $KC_OUT/phases, where a mark is what the host said about the
# server at that moment (CPU ticks and syncs so far), and leaves the client's RPC counters as stats before_NAME, after_NAME.
# Marks and counters lie outside of the time that is taken.
# Given: $JOBS (names), $SIZE_MIB, $COUNT, $TREE (tar file), $METALOOP (program).
set -eE

phase() {
	local name=$1 mark seconds t0
	shift
	kc-stats "before_$name"
	mark=$(kc-hook mark)
	t0=$EPOCHREALTIME
	seconds=$("$@")     # a phase that times itself prints its seconds
	[ -n "$seconds" ] || seconds=$(awk -v a="$t0" -v b="$EPOCHREALTIME" 'BEGIN { print b - a }')
	echo "$name $seconds $mark $(kc-hook mark)" >>"$KC_OUT/phases"
	kc-stats "after_$name"
}

write() { dd if=/dev/zero of=big bs=1M count="$SIZE_MIB" conv=fsync status=none; }
read_back() { dd if=big of=/dev/null bs=1M status=none; }
unpack() { tar -xf "$TREE"; }
wanted() { case " $JOBS " in *" $1 "*) true ;; *) false ;; esac; }

kc-hook network
# The first open waits for the server's grace; the sessions, the device and the connections to pools are made here too.
echo warm >warm; sync; cat warm >/dev/null; mkdir meta
# The tar file lies on the host: have its pages in the guest, so that no phase reads the host's disk.
cat "$TREE" >/dev/null

if wanted getattr; then phase getattr "$METALOOP" getattr "$COUNT" .; fi
if wanted write || wanted read; then phase write write; fi
if wanted read; then kc-drop; phase read read_back; fi
if wanted untar; then kc-drop; cat "$TREE" >/dev/null; phase untar unpack; fi
if wanted create || wanted stat || wanted remove; then phase create "$METALOOP" create "$COUNT" meta; fi
if wanted stat; then kc-drop; phase stat "$METALOOP" stat "$COUNT" meta; fi
if wanted remove; then phase remove "$METALOOP" remove "$COUNT" meta; fi
