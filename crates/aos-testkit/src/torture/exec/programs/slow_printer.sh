setsid sh -c 'while :; do echo drip; sleep 0.05; done' &
exit 0
