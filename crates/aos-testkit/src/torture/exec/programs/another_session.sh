# Out of the group, out of the session.
setsid sh -c 'sleep 100 & sleep 100' &
setsid sleep 100 < /dev/null > /dev/null 2>&1 &
exit 0
