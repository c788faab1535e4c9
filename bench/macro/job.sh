# The job that every side runs, in the guest, with its working directory at the mount. Sourced by the guest's shell.
#
# Given: $JOBS (names), $SIZE_MIB, $COUNT, $TREE (tar file), $METALOOP (program).
set -eE
. "${BASH_SOURCE[0]%/*}/phase.sh"

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
