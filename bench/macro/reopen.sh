# Open, read one frame, close, again and again, in the guest with its working directory at the mount. Sourced by the guest's
# shell. Given: $JOBS (names), $FRAMES, $FILES, $REOPEN (program).
set -eE
. "${BASH_SOURCE[0]%/*}/phase.sh"

wanted() { case " $JOBS " in *" $1 "*) true ;; *) false ;; esac; }
reopen() { "$REOPEN" "$@"; }
frame() { head -c 131072 /dev/zero >"$1"; }
made_held() { echo "$FRAMES"; }
made_loop() { echo "$FRAMES"; }
made_many() { echo $((FRAMES / FILES * FILES)); }
made_cached() { echo "$FILES"; }

kc-hook network
# The first open waits for the server's grace; the sessions, the device and the connections to pools are made here too.
echo warm >warm; frame one; frame held; mkdir many
for i in $(seq "$FILES"); do frame "many/$i"; done
kc-drop
cat warm held >/dev/null

if wanted held; then phase held reopen "$FRAMES" held held; fi
# Nobody has opened this file for reading: what it takes to learn that it is worth a delegation is part of the job.
if wanted loop; then phase loop reopen "$FRAMES" drop one; fi
# Their delegations go with them: Linux gives one back that it has not used for a lease, and this would be counted below.
rm -f warm held one
if wanted many || wanted cached; then phase many reopen $((FRAMES / FILES)) drop many/*; fi
if wanted cached; then phase cached reopen 1 keep many/*; fi
