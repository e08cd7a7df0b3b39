// Command kubelab runs the Kubernetes component named by its first argument.
//
// No wheel or Debian package carries kube-apiserver, but the Go modules are public: one binary that holds
// etcd, kube-apiserver, kube-controller-manager, kube-scheduler and kubelet compiles and links their common
// packages once. Everything after the first argument is the component's own command line, so its upstream
// documentation applies word for word.
package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"

	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	// Metrics and log formats register themselves on import, as in each component's own main package.
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

// exitUsage is the conventional exit status of a command line that names no known component.
const exitUsage = 64

// components maps a component's upstream name to the call that runs it and returns its exit status.
var components = map[string]func() int{
	// etcdmain.Main parses args[1:] itself and does not return before etcd has stopped.
	"etcd":                    func() int { etcdmain.Main(os.Args); return 0 },
	"kube-apiserver":          func() int { return cli.Run(apiserver.NewAPIServerCommand()) },
	"kube-controller-manager": func() int { return cli.Run(controllermanager.NewControllerManagerCommand()) },
	"kube-scheduler":          func() int { return cli.Run(scheduler.NewSchedulerCommand()) },
	"kubelet":                 func() int { return cli.Run(kubelet.NewKubeletCommand(context.Background())) },
}

func main() {
	if len(os.Args) < 2 || components[os.Args[1]] == nil {
		names := make([]string, 0, len(components))
		for name := range components {
			names = append(names, name)
		}
		slices.Sort(names)
		fmt.Fprintf(os.Stderr, "usage: kubelab {%s} [flag ...]\n", strings.Join(names, "|"))
		os.Exit(exitUsage)
	}
	run := components[os.Args[1]]
	os.Args = os.Args[1:] // The component sees its own name as argv[0] and its own flags after it.
	os.Exit(run())
}
