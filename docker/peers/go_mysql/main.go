// Reads a binlog file with go-mysql, rows decoded and checksums checked; several passes in one process.
//
//	go_mysql FILE PASSES SECONDS
//
// Prints a line of JSON for each pass: rows, values, wall and CPU seconds.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"syscall"
	"time"

	"github.com/go-mysql-org/go-mysql/replication"
)

func cpu() float64 {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		panic(err)
	}
	return float64(used.Utime.Nano()+used.Stime.Nano()) / 1e9
}

func pass(file string) (rows int, values int, err error) {
	parser := replication.NewBinlogParser()
	parser.SetVerifyChecksum(true)
	err = parser.ParseFile(file, 4, func(event *replication.BinlogEvent) error {
		change, ok := event.Event.(*replication.RowsEvent)
		if !ok {
			return nil
		}
		images := len(change.Rows)
		if change.Type() == replication.EnumRowsEventTypeUpdate {
			images /= 2
		}
		rows += images
		for _, row := range change.Rows {
			values += len(row)
		}
		return nil
	})
	return rows, values, err
}

func main() {
	passes, _ := strconv.Atoi(os.Args[2])
	seconds, _ := strconv.ParseFloat(os.Args[3], 64)
	began := time.Now()
	for number := 0; number < passes && (number == 0 || time.Since(began).Seconds() < seconds); number++ {
		start, used := time.Now(), cpu()
		rows, values, err := pass(os.Args[1])
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		line, _ := json.Marshal(map[string]any{
			"rows": rows, "values": values, "wall": time.Since(start).Seconds(), "cpu": cpu() - used,
		})
		fmt.Println(string(line))
	}
}
