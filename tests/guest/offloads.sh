# Big copies within the server: it answers at once and calls the client when it is done (CB_OFFLOAD). Guest 1 may be killed.

case_a_big_copy_is_one_question_and_one_callback() { PYTHONPATH=$GUEST py "$GUEST/offloads.py" whole; }
case_a_copy_that_is_interrupted_is_cancelled() { PYTHONPATH=$GUEST py "$GUEST/offloads.py" interrupted; }
case_a_server_killed_while_it_copies_ends_the_copy_in_time() { PYTHONPATH=$GUEST py "$GUEST/offloads.py" server_killed; }
case_a_killed_clients_copy_ends_with_it() { PYTHONPATH=$GUEST py "$GUEST/offloads.py" killed; }
