trap '' HUP INT QUIT TERM USR1 USR2 PIPE ALRM
while :; do sleep 0.2; done
