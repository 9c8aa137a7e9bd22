mod m {
    fn f() {
        one();
        if late() {
            two();

        }
    }
}
