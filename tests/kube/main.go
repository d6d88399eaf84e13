// Command kube bundles a Kubernetes control plane into one executable, so
// that the end-to-end tests need nothing but a Go toolchain: etcd, the API
// server, the controller manager, the scheduler and kubectl, each from its
// published module. Call it as `kube COMPONENT [flags]`, or through a link
// that has the component's name.
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	"k8s.io/kubectl/pkg/cmd"
	"k8s.io/kubectl/pkg/cmd/util"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"

	// The components' logs and client metrics register themselves on import.
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
)

var components = map[string]func() int{
	"etcd":                    func() int { etcdmain.Main(os.Args); return 0 },
	"kube-apiserver":          func() int { return cli.Run(apiserver.NewAPIServerCommand()) },
	"kube-controller-manager": func() int { return cli.Run(controllermanager.NewControllerManagerCommand()) },
	"kube-scheduler":          func() int { return cli.Run(scheduler.NewSchedulerCommand()) },
	"kubectl": func() int {
		util.CheckErr(cli.RunNoErrOutput(cmd.NewDefaultKubectlCommand()))
		return 0
	},
}

func main() {
	run, known := components[filepath.Base(os.Args[0])]
	if !known && len(os.Args) > 1 {
		if run, known = components[os.Args[1]]; known {
			os.Args = os.Args[1:]
		}
	}
	if !known {
		names := make([]string, 0, len(components))
		for name := range components {
			names = append(names, name)
		}
		slices.Sort(names)
		fmt.Fprintf(os.Stderr, "usage: kube {%s} [flags]\n", strings.Join(names, "|"))
		os.Exit(2)
	}
	os.Exit(run())
}
