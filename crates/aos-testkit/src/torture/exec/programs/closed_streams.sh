exec < /dev/null > /dev/null 2>&1
exec <&- >&- 2>&-
sleep 100
