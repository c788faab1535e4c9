# Two kernels write records in turn to one file, in a server whose pools gather such writes. The records are sent and not yet
# committed when the other client reads, searches, copies, frees and cuts.

was_gathered() {
	first_guest || return 0
	(cd / && kc-hook iostat) | grep -q 'delayed allocation: [1-9][0-9]* writes' || die "no write was gathered"
}

case_records_that_are_not_committed_are_read_by_the_other_client() { py "$GUEST/gathered.py" read; was_gathered; }

case_holes_are_found_and_freed_and_data_copied_beside_them() { py "$GUEST/gathered.py" ranges; was_gathered; }

case_a_truncation_cuts_them() { py "$GUEST/gathered.py" cut; was_gathered; }

case_a_killed_server_loses_none() { py "$GUEST/gathered.py" kill; was_gathered; }
