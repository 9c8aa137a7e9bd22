# An orphan prints for ever into a pipe that it does not own.
(while :; do echo spam; done) &
exit 0
