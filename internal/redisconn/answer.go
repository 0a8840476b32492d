package redisconn

import "strconv"

// An Answer is the result of a script: a list of strings, numbers (int64), and nil for missing
// values. A single value is a list of one.
type Answer []any

// newAnswer converts a reply of Redis to an Answer.
func newAnswer(value any) Answer {
	if list, ok := value.([]any); ok {
		return list
	}
	return Answer{value}
}

// Word returns the first string of an answer, or "" if there is none.
func (a Answer) Word() string { return a.Text(0) }

// Text returns the string at index i, or the number as a string, or "" if there is none.
func (a Answer) Text(i int) string {
	if i >= len(a) {
		return ""
	}
	if n, ok := a[i].(int64); ok {
		return strconv.FormatInt(n, 10)
	}
	s, _ := a[i].(string)
	return s
}

// Number returns the number at index i, or 0 if there is none.
func (a Answer) Number(i int) int64 {
	if i >= len(a) {
		return 0
	}
	n, _ := a[i].(int64)
	return n
}
