package main

import (
	"fmt"

	"example.org/small/part"
)

func main() { fmt.Println(part.Double(21)) }
