# A kernel client and curl in one guest, at the same files at once: one namespace, one conflict table, two doors.

url() { echo "$HTTP${PWD#"$MNT"}/$1"; }      # of a name in the case's directory
web() { curl -sS --cacert "$HTTP_CA" -u "$HTTP_LOGIN" "$@"; }
# status METHOD NAME [ARGUMENT...]: what curl is answered.
status() { local m=$1 n=$2; shift 2; web -o /run/answer -w '%{http_code}' -X "$m" "$@" "$(url "$n")"; }
put() { same "PUT $2" "$(web -o /run/answer -w '%{http_code}' -T "$1" "$(url "$2")")" "$3"; }
got() { web -f "$(url "$1")"; }
sum() { sha256sum | cut -d' ' -f1; }
pyweb() { PYTHONPATH=$GUEST py "$@"; }
random() { head -c "$2" /dev/urandom >"$1"; }
layouts_returned() { awk '/LAYOUTRETURN:/ { n += $2 } END { print n + 0 }' /proc/self/mountstats; }
LOCK='<lockinfo xmlns="DAV:"><lockscope><exclusive/></lockscope><locktype><write/></locktype></lockinfo>'
token() { grep -o 'urn:uuid:[0-9a-f-]*' /run/answer | head -1; }

case_http_gets_a_file_that_the_guest_closed() {
	pyweb - <<-'PY'
	import os
	from web import Door
	door = Door()
	for i in range(30):
	    data = os.urandom(1 + i * 50_000)
	    with open("f", "wb") as f:
	        f.write(data)
	    assert door.get("f") == data, "round %d" % i
	with open("f", "ab") as f:
	    f.write(b"more")
	assert door.get("f") == data + b"more", "after an append"
	os.truncate("f", 5)
	assert door.get("f") == data[:5], "after a truncation"
	PY
	same "by curl" "$(got f | sum)" "$(sum <f)"
}

case_http_gets_data_that_the_guest_synced_before_the_close() {
	exec 5>f
	echo one >&5; sync f
	same first "$(got f)" one
	echo two >&5; sync f
	same second "$(got f)" "$(printf 'one\ntwo')"
}

case_a_checksum_by_http_is_that_of_what_the_guest_wrote_last() {
	local adler32 i
	for i in 1 2 3; do
		if [ $i = 2 ]; then
			# In place, and as long as before: neither size nor name says that it changed.
			random /run/f 1000000; dd if=/run/f of=f conv=notrunc bs=1M status=none
		else
			random /run/f 1000000; put /run/f f "$([ $i = 1 ] && echo 201 || echo 204)"
		fi
		adler32=$(py -c 'import sys, zlib; print("%08x" % zlib.adler32(open("/run/f", "rb").read()))')
		same "adler32 in round $i" "$(web -I -H 'Want-Digest: adler32' "$(url f)" | tr -d '\r' |
			awk -F': ' 'tolower($1) == "digest" { print $2 }')" "adler32=$adler32"
	done
}

case_the_guest_opens_a_file_that_http_put() {
	pyweb - <<-'PY'
	import os
	from web import Door
	door = Door()
	for i in range(50):
	    data = os.urandom(1 + i * 30_000)
	    door.put("f", data)
	    with open("f", "rb") as f:
	        got = f.read()
	    assert got == data, "round %d: %d bytes of %d, %s" % (i, len(got), len(data), got[:20] == data[:20])
	    assert os.stat("f").st_size == len(data), "round %d" % i
	PY
	random /run/f 100000; put /run/f f 204
	same "by curl" "$(sum <f)" "$(sum </run/f)"
	same "mode and owner" "$(stat -c %a:%u:%g f)" 644:0:0
}

case_names_made_by_one_are_seen_by_the_other() {
	same MKCOL "$(status MKCOL d)" 201
	echo nfs >d/a
	echo http >/run/b; put /run/b d/b 201
	same "the guest's list" "$(ls d | tr '\n' ' ')" "a b "
	mv d/a d/c
	same "a moved" "$(status HEAD d/a --head)" 404
	same c "$(got d/c)" nfs
	same MOVE "$(status MOVE d/b -H "Destination: $(url d/e)")" 201
	ls d >/dev/null     # opening the directory is what makes a client ask for its names anew
	same e "$(cat d/e)" http
	ln -s c d/link
	same "through a symbolic link" "$(got d/link)" nfs
	same DELETE "$(status DELETE d)" 204
	ls >/dev/null
	refused "No such file" ls d
}

case_a_put_over_a_file_open_for_writing_recalls_its_layout() {
	local before
	random /run/old 4000000; random /run/new 3000000
	exec 5<>f
	cat /run/old >&5; sync f
	before=$(layouts_returned)
	put /run/new f 204
	[ "$(layouts_returned)" -gt "$before" ] || die "the guest was not asked for its layout"
	ls >/dev/null       # opening the directory is what makes a client ask for its names anew
	same "what is opened anew" "$(sum <f)" "$(sum </run/new)"
	# The old descriptor keeps the old file, and may go on writing there.
	echo more >&5
	same "the old descriptor" "$(py -c 'import hashlib, os; print(hashlib.sha256(os.pread(5, 1 << 23, 0)).hexdigest())' 5<&5)" \
		"$( (cat /run/old; echo more) | sum)"
	exec 5<&-
	same "after the old one was closed" "$(got f | sum)" "$(sum </run/new)"
	same "by the guest" "$(sum <f)" "$(sum </run/new)"
}

case_a_delete_lets_the_guest_read_on() {
	random /run/f 8000000
	cp /run/f f
	kc-drop
	exec 5<f
	head -c 1000000 <&5 >/run/got
	same DELETE "$(status DELETE f)" 204
	kc-drop
	cat <&5 >>/run/got
	same "all of it" "$(sum </run/got)" "$(sum </run/f)"
	refused "No such file" cat f
	same "by HTTP" "$(status HEAD f --head)" 404
}

case_a_get_goes_on_when_the_guest_removes_the_file() {
	random /run/f 30000000
	cp /run/f f
	mkfifo /run/pipe
	# What takes nothing keeps the response from being sent.
	web "$(url f)" >/run/pipe &
	exec 6</run/pipe
	head -c 100000 <&6 >/run/got
	rm f
	echo other >f
	cat <&6 >>/run/got
	same "all of it" "$(sum </run/got)" "$(sum </run/f)"
	same "the new one" "$(got f)" other
}

case_a_dav_lock_keeps_the_guest_from_changing_the_file() {
	echo locked >f; echo other >g
	same LOCK "$(status LOCK f -d "$LOCK")" 200
	local lock
	lock=$(token)
	refused "Permission denied" sh -c 'echo x >f'
	refused "Permission denied" sh -c 'echo x >>f'
	refused "busy" rm f
	refused "busy" mv g f
	refused "busy" mv f h
	same "it may be read" "$(cat f)" locked
	same "PUT without the token" "$(web -o /dev/null -w '%{http_code}' -T g "$(url f)")" 423
	same "PUT with it" "$(web -o /dev/null -w '%{http_code}' -T g -H "If: (<$lock>)" "$(url f)")" 204
	refused "Permission denied" sh -c 'echo x >f'
	same UNLOCK "$(status UNLOCK f -H "Lock-Token: <$lock>")" 204
	echo free >f
	same "by HTTP" "$(got f)" free
	rm f
}

case_a_guest_that_writes_keeps_locks_out() {
	exec 5>f
	echo one >&5
	same "LOCK while it is open for writing" "$(status LOCK f -d "$LOCK")" 423
	exec 5>&-
	same "LOCK after the close" "$(status LOCK f -d "$LOCK")" 200
	same UNLOCK "$(status UNLOCK f -H "Lock-Token: <$(token)>")" 204
	same content "$(got f)" one
}

case_a_move_over_a_file_that_the_guest_reads() {
	random /run/old 3000000; random /run/new 2000000
	cp /run/old f; cp /run/new g
	exec 5<f
	same "MOVE that may not replace" "$(status MOVE g -H "Destination: $(url f)" -H 'Overwrite: F')" 412
	same MOVE "$(status MOVE g -H "Destination: $(url f)")" 204
	ls >/dev/null
	same "what is opened anew" "$(sum <f)" "$(sum </run/new)"
	kc-drop
	same "the old descriptor" "$(sum <&5)" "$(sum </run/old)"
	ls >/dev/null
	refused "No such file" cat g
}

case_of_a_hundred_puts_every_read_sees_one_whole_version() {
	py - <<-'PY'
	import os
	for i in range(100):
	    # Each has a length of its own, and says in its first line what the rest is.
	    open("/run/v%d" % i, "w").write("%d %d\n" % (i, 100 + 37 * i) + "%09d\n" % i * (100 + 37 * i))
	PY
	put /run/v0 f 201
	(cd "$PWD" && pyweb "$GUEST/web.py" put f $(seq -f /run/v%.0f 99); touch /run/all) >/run/puts 2>&1 &
	py - <<-'PY'
	import os, time
	seen, reads = [], 0
	while True:
	    last = os.path.exists("/run/all")
	    with open("f", "rb") as f:
	        got = f.read()
	    head, _, rest = got.partition(b"\n")
	    assert head, "an empty file"
	    i, n = map(int, head.split())
	    assert rest == b"%09d\n" % i * n, "version %d is torn: %d bytes of %d" % (i, len(rest), 10 * n)
	    assert not seen or i >= seen[-1], "version %d after version %d" % (i, seen[-1])
	    seen.append(i); reads += 1
	    if last:
	        break
	assert seen[-1] == 99, "the last one seen is %d; of the PUTs: %r" % (seen[-1], open("/run/puts").read())
	print(reads, "reads saw", len(set(seen)), "versions")
	PY
	wait
	[ ! -s /run/puts ] || { cat /run/puts; die "a PUT failed"; }
}

case_a_hundred_rewrites_by_the_guest_are_never_torn_for_http() {
	# In the way of every careful program: a new file, then a rename over the old one.
	(py - <<-'PY'
	import os
	for i in range(1, 101):
	    with open("f.new", "w") as f:
	        f.write("%d %d\n" % (i, i * 37) + "%d\n" % i * (i * 37))
	    os.rename("f.new", "f")
	    open("/run/written", "w").close()
	PY
	touch /run/rewritten) &
	pyweb - <<-'PY'
	import os, time
	from web import Door
	door, reads, last = Door(), 0, False
	while not os.path.exists("/run/written"):
	    time.sleep(0.01)
	while not last:
	    last = os.path.exists("/run/rewritten")
	    head, _, rest = door.get("f").partition(b"\n")
	    assert head, "an empty file"
	    i, n = head.split()
	    assert rest == (i + b"\n") * int(n), "version %s is torn: %d bytes" % (i, len(rest))
	    reads += 1
	assert i == b"100", "the last one seen is %s" % i
	print(reads, "reads")
	PY
	wait
}
