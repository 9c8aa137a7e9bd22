script -qc 'sleep 100' /dev/null
