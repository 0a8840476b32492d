package outbound

import "net/http"

// An Outcome is the result of a request, in one word.
type Outcome uint8

const (
	Success Outcome = iota
	Gone            // 410
	ClientError
	ServerError
	Redirect
	Timeout
	Unreachable
	RefusedAddress
	TLS
	Other
	Outcomes // the number of outcomes
)

var outcomeNames = [Outcomes]string{
	"success", "gone", "client_error", "server_error", "redirect",
	"timeout", "unreachable", "refused_address", "tls", "other",
}

// String returns the name of the outcome in metrics.
func (o Outcome) String() string { return outcomeNames[o] }

// OfStatus returns the outcome that an answer's status stands for.
func OfStatus(status int) Outcome {
	switch {
	case status == http.StatusGone:
		return Gone
	case status >= 200 && status <= 299:
		return Success
	case status >= 300 && status <= 399:
		return Redirect
	case status >= 400 && status <= 499:
		return ClientError
	case status >= 500 && status <= 599:
		return ServerError
	}
	return Other
}
