func f() {
	one()
	three()
}
