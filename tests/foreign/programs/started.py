# case: started-package {python} -m package --rate 0.1
# case: started-command {python} -c "import package.train; package.train.main()" --rate 0.1
# case: started-stdin sh -c "echo 'import package.train; package.train.main()' | {python} - a"
# case: started-unbuffered {python} -u -W error -X dev {file}
# case: started-optimized {python} -OO -B {file}
# case: started-isolated {python} -I {file}
# case: started-pipe sh -c "{python} {file} | head -n 1; echo ended"
# case: started-debug {python} -bb -X faulthandler {file}
"""Other ways to start Python."""
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import package.train

package.train.main()
