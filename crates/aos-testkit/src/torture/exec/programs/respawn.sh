# Asked to go, it brings more.
trap 'setsid sleep 100 & setsid sleep 100 &' TERM INT HUP
while :; do sleep 0.05; done
