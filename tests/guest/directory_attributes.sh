# Two kernels: one changes the names of a directory, the other looks at it all the while. In every consistency mode.

look_while_the_other_changes() {
	local mode=$1
	if first_guest; then
		mkdir changed
		kc-hook consistency "/directory_attributes/${2#case_}/changed" "$mode"
	fi
	kc-barrier "$mode.made"
	if first_guest; then
		py "$GUEST/directory_attributes.py" change changed
	else
		ls -d changed
		py "$GUEST/directory_attributes.py" look changed "$mode"
	fi
	kc-barrier "$mode.end"
}

case_a_strong_directory_never_goes_back_on_the_other_client() { look_while_the_other_changes strong "${FUNCNAME[0]}"; }
case_a_weak_directory_never_goes_back_on_the_other_client() { look_while_the_other_changes weak "${FUNCNAME[0]}"; }
case_a_soft_directory_never_goes_back_on_the_other_client() { look_while_the_other_changes soft "${FUNCNAME[0]}"; }
case_an_auto_directory_never_goes_back_on_the_other_client() { look_while_the_other_changes auto "${FUNCNAME[0]}"; }
